// The rounding of weights, written once in Lanes.
#pragma once

#include "quantization/affine.h"
#include "quantization/rounding.h"
#include "quantization/scaled.h"

namespace farthing::FARTHING_ISA {

inline size_t round_symmetric(const RoundingJob& job, int bits) {
  return round_scaled(job, Uniform(bits));
}
inline size_t round_codebook(const RoundingJob& job, const int8_t* levels, float reach) {
  return round_scaled(job, Table(levels, reach));
}

inline constexpr RoundingKernels kRounding = {round_symmetric, round_codebook, round_affine};

}  // namespace farthing::FARTHING_ISA
