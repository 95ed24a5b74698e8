// Choosing tokens from rows of logits: contract shared by every instruction set.
#pragma once

#include "core/isa.h"
#include "core/types.h"

namespace farthing {

struct SamplingKernels {
  // Highest value, lowest id among equals; -1 if any value is NaN or none is finite.
  int32_t (*argmax)(const float* logits, int32_t width);
  // argmax over i of logits[i] / temperature + gumbel(seed, choice, position, i), the noise from
  // Philox4x32-10 keyed by (seed) with counter (choice, position, i, purpose). Ties as argmax.
  int32_t (*sample)(const float* logits, int32_t width, float temperature, uint64_t seed,
                    uint32_t choice, uint32_t position);
  // log(sum(exp(x))) by the 16-lane pattern with the running maximum subtracted.
  float (*log_sum_exp)(const float* logits, int32_t width);
};
const SamplingKernels& sampling_kernels(Isa isa);

}  // namespace farthing
