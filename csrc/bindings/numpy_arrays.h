// NumPy arrays as kernels take them: contiguous, on the CPU, of one element type. An argument of
// another kind is refused with a TypeError, never converted.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/checked_size.h"

namespace farthing {

// An argument that is the caller's own array. nanobind would turn one of another element type or
// order into a copy: numbers would change unseen, and what is written to a copy is lost.
template <class... Spec>
struct ExactArray : nanobind::ndarray<Spec...> {
  ExactArray() = default;
  explicit ExactArray(nanobind::ndarray<Spec...> array)
      : nanobind::ndarray<Spec...>(std::move(array)) {}
};

template <class T, int kDims>
using InArray = ExactArray<const T, nanobind::ndim<kDims>, nanobind::c_contig,
                           nanobind::device::cpu>;
template <class T, int kDims>
using InOutArray = ExactArray<T, nanobind::ndim<kDims>, nanobind::c_contig, nanobind::device::cpu>;
using InBytes = ExactArray<const uint8_t, nanobind::c_contig, nanobind::device::cpu>;  // any shape
template <class T>
using OutArray = nanobind::ndarray<nanobind::numpy, T>;

// A new array, filled by the caller before it is returned. Throws std::bad_alloc.
template <class T>
OutArray<T> new_array(std::initializer_list<size_t> shape) {
  size_t count = sizeof(T);
  for (size_t extent : shape) count = checked_product({count, extent});
  count /= sizeof(T);
  std::unique_ptr<T[]> data(new T[count == 0 ? 1 : count]);
  nanobind::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return OutArray<T>(data.release(), shape, owner);
}

inline void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

// An array's extent as kernels count. Throws std::invalid_argument where they cannot.
inline int32_t extent_of(size_t extent) {
  if (extent > INT32_MAX)
    throw std::invalid_argument("an array of " + std::to_string(extent) +
                                " rows or columns; there may be " + std::to_string(INT32_MAX));
  return static_cast<int32_t>(extent);
}

}  // namespace farthing

namespace nanobind::detail {

template <class... Spec>
struct type_caster<farthing::ExactArray<Spec...>> {
  using Plain = type_caster<ndarray<Spec...>>;
  NB_TYPE_CASTER(farthing::ExactArray<Spec...>, Plain::Name)

  template <class Flags>
  bool from_python(handle source, Flags flags, cleanup_list* cleanup) noexcept {
    Plain plain;
    const Flags exact = flags & static_cast<Flags>(~static_cast<Flags>(cast_flags::convert));
    if (!plain.from_python(source, exact, cleanup)) return false;
    value = Value(std::move(plain.value));
    return true;
  }
};

}  // namespace nanobind::detail
