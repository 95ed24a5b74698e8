// exp, log and tanh of sixteen floats from fma and IEEE operations alone: no libm, whose bits
// differ between versions. Polynomials: fit_polynomials.py. The errors below were measured over
// every float; tests/kernels/test_vector_math.py holds them.
// NaN gives NaN; its payload and sign are unspecified.
#pragma once

#include "core/lanes.h"

namespace farthing::FARTHING_ISA {

namespace constants {
inline constexpr float kLn2High = 0x1.62e4p-1f;  // 16 bits: exact times any exponent
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;
inline constexpr float kLog2e = 0x1.715476p+0f;
inline constexpr float kExpLowest = -0x1.5d589ep+6f;  // ln 2^-126, rounded up
inline constexpr float kExpHighest = 0x1.62e42ep+6f;  // ln of the largest float, rounded down
inline constexpr uint32_t kInfinityBits = 0x7f800000;
inline constexpr uint32_t kNanBits = 0x7fc00000;
inline constexpr uint32_t kSignBit = 0x80000000;
}  // namespace constants

namespace detail {

// e^x for x clamped to [kExpLowest, kExpHighest]: x = k ln 2 + r, |r| <= ln 2 / 2, and
// e^r = 1 + r + r^2 q(r) with relative error 2^-28; k is added to the exponent bits.
FARTHING_INLINE Lanes exp_in_range(Lanes x) {
  using namespace constants;
  const IntLanes k = round_to_int(x * broadcast(kLog2e));
  const Lanes multiple = to_float(k);
  Lanes r = fma(multiple, broadcast(-kLn2High), x);
  r = fma(multiple, broadcast(-kLn2Low), r);
  Lanes q = broadcast(0x1.6a2434p-10f);
  q = fma(q, r, broadcast(0x1.1239e2p-7f));
  q = fma(q, r, broadcast(0x1.5558f2p-5f));
  q = fma(q, r, broadcast(0x1.555492p-3f));
  q = fma(q, r, broadcast(0x1.fffffcp-2f));
  q = fma(q, r, broadcast(1.0f));
  q = fma(q, r, broadcast(1.0f));
  return as_float(as_int(q) + shift_left<23>(k));
}

// log(1 + f) + k ln 2 for f in [sqrt(1/2) - 1, sqrt(2) - 1], integral k, as
// f - f^2 / 2 + f^3 q(f) with relative error 2^-30 of log(1 + f).
FARTHING_INLINE Lanes log_of_parts(Lanes f, Lanes k) {
  using namespace constants;
  Lanes q = broadcast(0x1.1457a4p-4f);
  q = fma(q, f, broadcast(-0x1.de3c12p-4f));
  q = fma(q, f, broadcast(0x1.e6f06ap-4f));
  q = fma(q, f, broadcast(-0x1.fc2208p-4f));
  q = fma(q, f, broadcast(0x1.233768p-3f));
  q = fma(q, f, broadcast(-0x1.555c4ep-3f));
  q = fma(q, f, broadcast(0x1.99a4b6p-3f));
  q = fma(q, f, broadcast(-0x1.000006p-2f));
  q = fma(q, f, broadcast(0x1.555548p-2f));
  q = fma(q, f, broadcast(-0.5f));
  const Lanes rest = fma(f * f, q, k * broadcast(kLn2Low));
  return fma(k, broadcast(kLn2High), f + rest);
}

}  // namespace detail

// e^x for x <= 0 (or NaN). Same bits as exp.
FARTHING_INLINE Lanes exp_of_nonpositive(Lanes x) {
  const Lanes lowest = broadcast(constants::kExpLowest);
  return keep(not_less(x, lowest), detail::exp_in_range(maximum(lowest, x)));
}

// e^x, at most 0.9 ulp off. exp(0) is 1. Results below the smallest normal number are 0.
FARTHING_INLINE Lanes exp(Lanes x) {
  using namespace constants;
  const Lanes highest = broadcast(kExpHighest);
  const Lanes y = exp_of_nonpositive(minimum(highest, x));
  return select(less(highest, x), as_float(broadcast_int(kInfinityBits)), y);
}

// Natural logarithm, at most 0.86 ulp off. log(0) is -infinity, of negative numbers NaN.
FARTHING_INLINE Lanes log(Lanes x) {
  using namespace constants;
  constexpr uint32_t kSqrtHalfBits = 0x3f3504f3;
  const Mask tiny = less(x, broadcast(0x1p-126f));
  const Lanes scaled = select(tiny, x * broadcast(0x1p23f), x);
  const IntLanes k = shift_right_signed<23>(as_int(scaled) - broadcast_int(kSqrtHalfBits));
  const Lanes mantissa = as_float(as_int(scaled) - shift_left<23>(k));
  const Lanes exponent = to_float(k) - keep(tiny, broadcast(23.0f));
  Lanes y = detail::log_of_parts(mantissa - broadcast(1.0f), exponent);
  const Lanes infinity = as_float(broadcast_int(kInfinityBits));
  y = select(less(x, infinity), y, x);  // infinity and NaN are themselves
  y = select(less(x, zero()), as_float(broadcast_int(kNanBits)), y);
  return select(equal(x, zero()), as_float(broadcast_int(kInfinityBits | kSignBit)), y);
}

// At most 1.37 ulp off. An odd polynomial below 0.625, else 1 - 2 / (e^(2|x|) + 1).
FARTHING_INLINE Lanes tanh(Lanes x) {
  using namespace constants;
  const IntLanes sign = as_int(x) & broadcast_int(kSignBit);
  const Lanes size = as_float(as_int(x) ^ sign);
  const Lanes z = size * size;
  Lanes q = broadcast(0x1.197b7cp-9f);
  q = fma(q, z, broadcast(-0x1.0c2146p-7f));
  q = fma(q, z, broadcast(0x1.6394dap-6f));
  q = fma(q, z, broadcast(-0x1.b9ef7cp-5f));
  q = fma(q, z, broadcast(0x1.11106cp-3f));
  q = fma(q, z, broadcast(-0x1.555554p-2f));
  const Lanes small = fma(size * z, q, size);
  const Lanes one = broadcast(1.0f);
  const Lanes large = one - broadcast(2.0f) / (exp(size + size) + one);
  const Lanes y = select(less(size, broadcast(0.625f)), small, large);
  return as_float(as_int(y) | sign);
}

}  // namespace farthing::FARTHING_ISA
