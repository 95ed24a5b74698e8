// NumPy arrays as kernels take them: contiguous, on the CPU, of one element type.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>

namespace farthing {

template <class T, int kDims>
using InArray = nanobind::ndarray<const T, nanobind::ndim<kDims>, nanobind::c_contig,
                                  nanobind::device::cpu>;
template <class T, int kDims>
using InOutArray = nanobind::ndarray<T, nanobind::ndim<kDims>, nanobind::c_contig,
                                     nanobind::device::cpu>;
template <class T>
using OutArray = nanobind::ndarray<nanobind::numpy, T>;

// A new array, filled by the caller before it is returned.
template <class T>
OutArray<T> new_array(std::initializer_list<size_t> shape) {
  size_t count = 1;
  for (size_t extent : shape) count *= extent;
  std::unique_ptr<T[]> data(new T[count == 0 ? 1 : count]);
  nanobind::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return OutArray<T>(data.release(), shape, owner);
}

inline void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

}  // namespace farthing
