// A double for each of sixteen lanes, in vectors of the compiler as wide as the set's registers: its
// vectorizer would leave conditional divisions and short loops over lanes alone.
#pragma once

#include "core/lanes.h"

namespace farthing::FARTHING_ISA {

inline constexpr int kGroups = 16;  // a lane each

#if FARTHING_LANES_OF(FARTHING_ISA) == 2
using DoubleVector = double __attribute__((vector_size(64)));
#elif FARTHING_LANES_OF(FARTHING_ISA) == 1
using DoubleVector = double __attribute__((vector_size(32)));
#else
using DoubleVector = double __attribute__((vector_size(16)));
#endif
inline constexpr int kDoubleVectors = kGroups * sizeof(double) / sizeof(DoubleVector);

union Doubles {
  double v[kGroups];
  DoubleVector vectors[kDoubleVectors];
};

FARTHING_INLINE Doubles doubles(Lanes x) {
  Doubles result;
#if FARTHING_LANES_OF(FARTHING_ISA) == 2
  result.vectors[0] = _mm512_cvtps_pd(_mm512_castps512_ps256(x.v));
  result.vectors[1] = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1));
#elif FARTHING_LANES_OF(FARTHING_ISA) == 1
  result.vectors[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(x.low));
  result.vectors[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(x.low, 1));
  result.vectors[2] = _mm256_cvtps_pd(_mm256_castps256_ps128(x.high));
  result.vectors[3] = _mm256_cvtps_pd(_mm256_extractf128_ps(x.high, 1));
#else
  float floats[kGroups];
  store(floats, x);
  for (int i = 0; i < kDoubleVectors; ++i)
    result.vectors[i] = DoubleVector{floats[2 * i], floats[2 * i + 1]};
#endif
  return result;
}

}  // namespace farthing::FARTHING_ISA
