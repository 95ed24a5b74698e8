// The loop all limits are measured with: twelve sums that stay in registers.
//
// Only for files compiled with FARTHING_ISA.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstdint>

#include "core/inline.h"

namespace farthing::FARTHING_ISA {

// Of the latency of an instruction times its number a cycle, no CPU so far has more than ten; with
// two operands and a product twelve fit sixteen registers.
inline constexpr int kAccumulators = 12;

// Small codes: no sum of a pair reaches the bounds of int16.
inline constexpr int8_t kWeightCode = 3, kActivationCode = 5;

// The compiler no longer knows the value, at the cost of no instruction.
FARTHING_INLINE void opaque(uint32_t& x) { __asm__ volatile("" : "+r"(x)); }
#if defined(__aarch64__)
FARTHING_INLINE void opaque(float& x) { __asm__ volatile("" : "+w"(x)); }
FARTHING_INLINE void opaque(int32x4_t& x) { __asm__ volatile("" : "+w"(x)); }
FARTHING_INLINE void opaque(float32x4_t& x) { __asm__ volatile("" : "+w"(x)); }
#else
FARTHING_INLINE void opaque(float& x) { __asm__ volatile("" : "+x"(x)); }
#endif
#if defined(__AVX512F__)
FARTHING_INLINE void opaque(__m512i& x) { __asm__ volatile("" : "+v"(x)); }
FARTHING_INLINE void opaque(__m512& x) { __asm__ volatile("" : "+v"(x)); }
#endif
#if defined(__AVX2__)
FARTHING_INLINE void opaque(__m256i& x) { __asm__ volatile("" : "+x"(x)); }
FARTHING_INLINE void opaque(__m256& x) { __asm__ volatile("" : "+x"(x)); }
#endif

// sums[i] = step(... step(0, weight, activation) ..., weight, activation), `iterations` times. A
// product of operands that never change is computed each time, since they might have; and where there
// are sixteen registers a sum is complete before the next product begins, lest products be put aside
// in memory.
template <class Register, class Step>
FARTHING_INLINE void accumulate(int64_t iterations, Register weight, Register activation,
                                Register (&sums)[kAccumulators], Step step) {
  Register s0{}, s1{}, s2{}, s3{}, s4{}, s5{}, s6{}, s7{}, s8{}, s9{}, s10{}, s11{};
  opaque(activation);
  const auto add = [&](Register& sum) __attribute__((always_inline)) {
    opaque(weight);
    sum = step(sum, weight, activation);
    if constexpr (sizeof(Register) < 64) opaque(sum);
  };
  for (int64_t i = 0; i < iterations; ++i) {
    add(s0), add(s1), add(s2), add(s3), add(s4), add(s5);
    add(s6), add(s7), add(s8), add(s9), add(s10), add(s11);
  }
  const Register all[kAccumulators] = {s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11};
  for (int i = 0; i < kAccumulators; ++i) sums[i] = all[i];
}

// The lanes of all registers, as numbers of type Lane, added up.
template <class Lane, class Register>
uint64_t total(const Register (&sums)[kAccumulators]) {
  constexpr int kLaneCount = sizeof(Register) / sizeof(Lane);
  uint64_t result = 0;
  for (const Register& sum : sums) {
    Lane lanes[kLaneCount];
    __builtin_memcpy(lanes, &sum, sizeof(sum));
    for (Lane lane : lanes) result += static_cast<uint64_t>(static_cast<int64_t>(lane));
  }
  return result;
}

}  // namespace farthing::FARTHING_ISA
