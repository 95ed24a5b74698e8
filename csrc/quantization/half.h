// Conversions between float32 and IEEE binary16 in integer arithmetic: the same bits everywhere.
#pragma once

#include <cstdint>

#include "core/inline.h"

namespace farthing {

inline constexpr uint16_t kHalfInfinity = 0x7c00;

// To nearest, ties to even; too large becomes infinity. Not for NaNs.
FARTHING_INLINE uint16_t to_half(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | kHalfInfinity);  // 65536
  if (magnitude < 0x38800000) {  // below 2^-14: a whole number of 2^-24
    if (magnitude < 0x33000000) return static_cast<uint16_t>(sign);  // below 2^-25
    const int shift = 126 - static_cast<int>(magnitude >> 23);
    const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    const uint32_t whole = mantissa >> shift;
    const uint32_t rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    return static_cast<uint16_t>(sign | (whole + (rest > half || (rest == half && (whole & 1)))));
  }
  // A carry out of the mantissa raises the exponent, up to infinity.
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (rounded - 0x38000000) >> 13);
}

// Exact. Not for infinities and NaNs.
FARTHING_INLINE float from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 31, mantissa = half & 0x3ff;
  if (exponent != 0) return __builtin_bit_cast(float, sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, magnitude));
}

}  // namespace farthing
