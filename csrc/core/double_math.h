// sin, cos, exp and log of doubles from fma and IEEE operations alone, for the tables of rope.
// Branch-free, so that the compiler may put several in one register: that changes no bit.
#pragma once

#include <cstdint>

#include "core/lanes.h"

namespace farthing::FARTHING_ISA {

namespace detail {

inline constexpr double kRoundingShift = 0x1.8p52;  // the sum's last bit is worth one
inline constexpr double kDoubleLn2High = 0x1.62e42fefa38p-1;  // 42 bits: exact times any exponent
inline constexpr double kDoubleLn2Low = 0x1.ef35793c7673p-45;

FARTHING_INLINE uint64_t bits(double x) { return __builtin_bit_cast(uint64_t, x); }
FARTHING_INLINE double from_bits(uint64_t x) { return __builtin_bit_cast(double, x); }

}  // namespace detail

// Sine and cosine, at most 0.8 ulp off for |x| <= 2^18.
//
// x = k pi/2 + r + tail with pi/2 in three parts. The first fma is exact there (x and k times the
// 53-bit first part share their last bit's weight, and cancel); what the second part's product and
// difference round off goes to the tail, with the third part. On |r| <= pi/4 and with z = r^2,
// sin r = r + r z p(z) and cos r = 1 - z/2 + z^2 p(z), relative errors 2^-58 and 2^-64; the tail
// enters to first order.
FARTHING_INLINE void sin_cos(double x, double& sine, double& cosine) {
  const double shifted = __builtin_fma(x, 0x1.45f306dc9c883p-1, detail::kRoundingShift);
  const double k = shifted - detail::kRoundingShift;
  const double first = __builtin_fma(k, -0x1.921fb54442d18p+0, x);
  const double product = k * 0x1.1a62633145c07p-54;
  const double r = first - product;
  const double back = r - first;
  double tail = (first - (r - back)) - (product + back);  // what r's rounding lost
  tail -= __builtin_fma(k, 0x1.1a62633145c07p-54, -product);
  tail = __builtin_fma(k, 0x1.f1976b7ed8fbcp-110, tail);
  const double z = r * r;
  double p = 0x1.5d93183f7215ap-33;
  p = __builtin_fma(p, z, -0x1.ae5e6688215c6p-26);
  p = __builtin_fma(p, z, 0x1.71de35781606bp-19);
  p = __builtin_fma(p, z, -0x1.a01a019c1202dp-13);
  p = __builtin_fma(p, z, 0x1.111111110f87dp-7);
  p = __builtin_fma(p, z, -0x1.5555555555549p-3);
  const double half = 0.5 * z;
  const double one_minus = 1.0 - half;
  const double s = r + __builtin_fma(r * z, p, tail * one_minus);
  double c = -0x1.8faeb5dfe0cc7p-37;
  c = __builtin_fma(c, z, 0x1.1ee9ec1888c51p-29);
  c = __builtin_fma(c, z, -0x1.27e4f80a33a2dp-22);
  c = __builtin_fma(c, z, 0x1.a01a019cb2169p-16);
  c = __builtin_fma(c, z, -0x1.6c16c16c15181p-10);
  c = __builtin_fma(c, z, 0x1.555555555554cp-5);
  const double lost = (1.0 - one_minus) - half;  // by rounding one_minus
  c = one_minus + __builtin_fma(z * z, c, lost - r * tail);
  // Quadrant k: odd swaps, sine is negative in 2 and 3, cosine in 1 and 2.
  const uint64_t quadrant = detail::bits(shifted);
  const uint64_t swap = 0 - (quadrant & 1);
  const uint64_t exchange = (detail::bits(s) ^ detail::bits(c)) & swap;
  sine = detail::from_bits((detail::bits(s) ^ exchange) ^ ((quadrant & 2) << 62));
  cosine = detail::from_bits((detail::bits(c) ^ exchange) ^ (((quadrant + 1) & 2) << 62));
}

// e^x, at most 1 ulp off. exp(0) is 1; results below the smallest normal number are 0.
FARTHING_INLINE double exp(double x) {
  const double lowest = -0x1.6232bdd7abcd2p+9, highest = 0x1.62e42fefa39efp+9;
  const double inside = x < lowest ? lowest : (x > highest ? highest : x);
  const double shifted = __builtin_fma(inside, 0x1.71547652b82fep+0, detail::kRoundingShift);
  const double k = shifted - detail::kRoundingShift;
  double r = __builtin_fma(k, -detail::kDoubleLn2High, inside);
  r = __builtin_fma(k, -detail::kDoubleLn2Low, r);
  double q = 0x1.1e3d2d6e5409bp-29;
  q = __builtin_fma(q, r, 0x1.af6be7f1a6d71p-26);
  q = __builtin_fma(q, r, 0x1.27e5b44625d87p-22);
  q = __builtin_fma(q, r, 0x1.71ddf020c666ap-19);
  q = __builtin_fma(q, r, 0x1.a01a01368f770p-16);
  q = __builtin_fma(q, r, 0x1.a01a01b37e3afp-13);
  q = __builtin_fma(q, r, 0x1.6c16c16c3048dp-10);
  q = __builtin_fma(q, r, 0x1.111111110ec5dp-7);
  q = __builtin_fma(q, r, 0x1.5555555555503p-5);
  q = __builtin_fma(q, r, 0x1.555555555555bp-3);
  q = __builtin_fma(q, r, 0.5);
  const double y = 1.0 + __builtin_fma(r * r, q, r);
  const double scaled = detail::from_bits(detail::bits(y) + (detail::bits(shifted) << 52));
  const double infinity = detail::from_bits(uint64_t{0x7ff} << 52);
  return x != x ? x : (x < lowest ? 0.0 : (x > highest ? infinity : scaled));
}

// Natural logarithm of a positive normal number, at most 0.9 ulp off.
//
// x = 2^k (1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1]; with s = f / (2 + f), log(1 + f) =
// 2 s + s^3 p(s^2) = f - (f^2/2 - s (f^2/2 + s^2 p)), relative error 2^-66.
FARTHING_INLINE double log(double x) {
  constexpr uint64_t kSqrtHalfBits = 0x3fe6a09e667f3bcd;
  const int64_t exponent = static_cast<int64_t>(detail::bits(x) - kSqrtHalfBits) >> 52;
  const uint64_t scale = static_cast<uint64_t>(exponent) << 52;
  const double f = detail::from_bits(detail::bits(x) - scale) - 1.0;
  const double k = static_cast<double>(exponent);
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = 0x1.0f6313611147ep-3;
  p = __builtin_fma(p, z, 0x1.0f5cc8e032bbap-3);
  p = __builtin_fma(p, z, 0x1.3b20ab90f0df4p-3);
  p = __builtin_fma(p, z, 0x1.745cde35986fap-3);
  p = __builtin_fma(p, z, 0x1.c71c7258fdbd0p-3);
  p = __builtin_fma(p, z, 0x1.249249242b413p-2);
  p = __builtin_fma(p, z, 0x1.9999999999dffp-2);
  p = __builtin_fma(p, z, 0x1.5555555555555p-1);
  const double half = 0.5 * f * f;
  const double rest = __builtin_fma(s, __builtin_fma(z, p, half), k * detail::kDoubleLn2Low);
  return __builtin_fma(k, detail::kDoubleLn2High, f - (half - rest));
}

}  // namespace farthing::FARTHING_ISA
