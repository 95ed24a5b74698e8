// What an error counts for, by the value it is made on.
#pragma once

#include "quantization/doubles.h"

namespace farthing::FARTHING_ISA {

struct Unweighted {
  FARTHING_INLINE static Lanes times(Lanes, Lanes x) { return x; }
  FARTHING_INLINE static Doubles times(Lanes, Doubles x) { return x; }
};

struct ByMagnitude {
  FARTHING_INLINE static Lanes times(Lanes value, Lanes x) { return magnitude(value) * x; }
  FARTHING_INLINE static Doubles times(Lanes value, Doubles x) {
    const Doubles weight = doubles(magnitude(value));
    for (int i = 0; i < kDoubleVectors; ++i) x.vectors[i] = weight.vectors[i] * x.vectors[i];
    return x;
  }
};

// Nearest whole numbers from low to high, ties to even; these are below 2^22.
FARTHING_INLINE Lanes nearest_whole(Lanes x, float low, float high) {
  const Lanes shift = broadcast(12582912.0f);  // 1.5 * 2^23: its neighbours are whole numbers apart
  return (minimum(broadcast(high), maximum(broadcast(low), x)) + shift) - shift;
}

}  // namespace farthing::FARTHING_ISA
