// Finding numbers that are no numbers in checkpoint bytes, before they are packed. Bits only, so
// every instruction set gives the same answer; the compiler vectorizes the runs.
#include <algorithm>
#include <cstring>

#include "kernels/linear/layout.h"
#include "kernels/linear/linear.h"

namespace farthing {
namespace {

template <class T>
T load(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}

// A float of type T is a NaN or an infinity if all bits of kExponent are set.
template <class T, T kExponent>
size_t first_element(const uint8_t* source, size_t bytes) {
  constexpr size_t kRun = 1024;
  const size_t count = bytes / sizeof(T);
  for (size_t run = 0; run < count; run += kRun) {
    const size_t end = std::min(run + kRun, count);
    T found = 0;
    for (size_t i = run; i < end; ++i) {
      const T exponent = static_cast<T>(load<T>(source + sizeof(T) * i) & kExponent);
      found = static_cast<T>(found | static_cast<T>(exponent == kExponent));
    }
    if (found == 0) continue;
    for (size_t i = run; i < end; ++i)
      if ((load<T>(source + sizeof(T) * i) & kExponent) == kExponent) return sizeof(T) * i;
  }
  return bytes;
}

constexpr uint16_t kHalfExponent = 0x7c00;

// The `halves` fp16 numbers `offset` bytes into every block.
size_t first_scale(const uint8_t* source, size_t bytes, size_t block, size_t offset,
                   size_t halves) {
  for (size_t at = offset; at + 2 * halves <= bytes; at += block)
    for (size_t i = 0; i < halves; ++i)
      if ((load<uint16_t>(source + at + 2 * i) & kHalfExponent) == kHalfExponent)
        return at + 2 * i;
  return bytes;
}

}  // namespace

size_t first_nonfinite(Scheme scheme, const uint8_t* source, size_t bytes) {
  if (scheme == Scheme::f32) return first_element<uint32_t, 0x7f800000>(source, bytes);
  if (scheme == Scheme::f16) return first_element<uint16_t, kHalfExponent>(source, bytes);
  if (scheme == Scheme::bf16) return first_element<uint16_t, 0x7f80>(source, bytes);
  const size_t block = static_cast<size_t>(scheme_info(scheme).block_bytes);
  const bool minimum = kTraits[static_cast<int>(scheme)].minimum;
  const size_t offset = scheme == Scheme::q6_k ? block - 2 : 0;  // q6_k has its scale last
  return first_scale(source, bytes, block, offset, minimum ? 2 : 1);
}

}  // namespace farthing
