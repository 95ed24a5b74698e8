// Choosing tokens from rows of logits: contract shared by every instruction set.
#pragma once

#include "core/isa.h"
#include "core/types.h"

namespace farthing {

// Last word of the counter: numbers drawn for different ends never coincide.
enum class NoisePurpose : uint32_t { token = 0 };

// The noise of one (seed, choice, position, token) is a pure function of the four.
//
// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011), counter words (choice, position, token, purpose), key words (low half of seed, high
// half). Of the four result words the first, x, gives u = (x | 1) / 2^32, and 1 - u = (~x | 1) /
// 2^32 exactly, so u is never 0 or 1 and both ends are equally fine. The Gumbel variate is
// -log(-log u), with log1p's precision where u is near 1: between -3.11 and 22.19.
struct SamplingKernels {
  // Highest value, lowest id among equals; -1 if any value is NaN or none is finite.
  int32_t (*argmax)(const float* logits, int32_t width);
  // argmax over i of (logits[i] - highest logit) / temperature + gumbel(seed, choice, position, i);
  // ties and refusals as argmax. temperature 0 (or below) is argmax, as is a logit of +infinity.
  int32_t (*sample)(const float* logits, int32_t width, float temperature, uint64_t seed,
                    uint32_t choice, uint32_t position);
  // log(sum(exp(x))), the maximum subtracted before and added after; lane i sums columns i, i + 16,
  // ... ascending, lanes join by the fixed tree. NaN if any value is.
  float (*log_sum_exp)(const float* logits, int32_t width);
  // The Gumbel variates of tokens first_token, first_token + 1, ...: what `sample` adds.
  void (*gumbel_row)(uint64_t seed, uint32_t choice, uint32_t position, uint32_t first_token,
                     int32_t count, float* out);
  // The four Philox words of counters (c0, c1, c2 + i, c3), i < count: out (count, 4).
  void (*philox_rows)(uint64_t key, const uint32_t counter[4], int32_t count, uint32_t* out);
};
const SamplingKernels& sampling_kernels(Isa isa);

}  // namespace farthing
