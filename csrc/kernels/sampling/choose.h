// argmax, coupled sampling and log-sum-exp, written once in Lanes.
#pragma once

#include "core/lanes.h"
#include "core/vector_math.h"
#include "kernels/sampling/noise.h"
#include "kernels/sampling/sampling.h"

namespace farthing::FARTHING_ISA {

FARTHING_INLINE float infinity() {
  return __builtin_bit_cast(float, constants::kInfinityBits);
}

struct Highest {
  float value;  // -infinity when there is none
  bool has_nan;
};

inline Highest highest(const float* x, int32_t width) {
  const Lanes none = broadcast(-infinity());
  Lanes best[4] = {none, none, none, none};
  Mask nan = first_lanes(0);
  int32_t i = 0;
  for (; i + 64 <= width; i += 64) {
    const Lanes a = load(x + i), b = load(x + i + 16), c = load(x + i + 32), d = load(x + i + 48);
    best[0] = maximum(a, best[0]);
    best[1] = maximum(b, best[1]);
    best[2] = maximum(c, best[2]);
    best[3] = maximum(d, best[3]);
    nan = nan | unordered(a, b) | unordered(c, d);
  }
  for (; i < width; i += 16) {
    const int32_t rest = width - i < 16 ? width - i : 16;
    const Lanes a = select(first_lanes(rest), load_first(x + i, rest), none);
    best[0] = maximum(a, best[0]);
    nan = nan | unordered(a, a);
  }
  const Lanes all = maximum(maximum(best[0], best[1]), maximum(best[2], best[3]));
  return {largest(all), mask_bits(nan) != 0};
}

inline bool any_finite(const float* x, int32_t width) {
  for (int32_t i = 0; i < width; ++i)
    if (x[i] - x[i] == 0.0f) return true;
  return false;
}

inline int32_t argmax(const float* logits, int32_t width) {
  const Highest top = highest(logits, width);
  if (top.has_nan || top.value == -infinity()) return -1;
  if (top.value == infinity() && !any_finite(logits, width)) return -1;
  const Lanes value = broadcast(top.value);
  for (int32_t i = 0; i < width; i += 16) {
    const int32_t rest = width - i < 16 ? width - i : 16;
    const Lanes x = rest == 16 ? load(logits + i) : load_first(logits + i, rest);
    const uint32_t found = mask_bits(equal(x, value)) & ((uint32_t{1} << rest) - 1);
    if (found != 0) return i + __builtin_ctz(found);
  }
  return -1;
}

inline int32_t sample(const float* logits, int32_t width, float temperature, uint64_t seed,
                      uint32_t choice, uint32_t position) {
  int32_t best = argmax(logits, width);
  if (best < 0 || !(temperature > 0.0f) || logits[best] == infinity()) return best;
  // No noise is above the bound, and every step of a score rises with the noise and the logit, so
  // lanes that cannot reach the best score so far need no noise: nearly all of them.
  const Lanes bound = broadcast(22.25f), divisor = broadcast(temperature);
  const Lanes top = broadcast(logits[best]);
  float noise[16];
  store(noise, token_noise(seed, choice, position, static_cast<uint32_t>(best)));
  float best_score = noise[0];
  for (int32_t i = 0; i < width; i += 16) {
    const int32_t rest = width - i < 16 ? width - i : 16;
    const Lanes x = rest == 16 ? load(logits + i) : load_first(logits + i, rest);
    const Lanes height = (x - top) / divisor;
    const uint32_t present = (uint32_t{1} << rest) - 1;
    if ((mask_bits(less(height + bound, broadcast(best_score))) & present) == present) continue;
    const Lanes score = height + token_noise(seed, choice, position, static_cast<uint32_t>(i));
    uint32_t rivals = ~mask_bits(less(score, broadcast(best_score))) & present;
    float scores[16];
    store(scores, score);
    for (; rivals != 0; rivals &= rivals - 1) {
      const int32_t lane = __builtin_ctz(rivals);
      if (scores[lane] > best_score || (scores[lane] == best_score && i + lane < best)) {
        best_score = scores[lane];
        best = i + lane;
      }
    }
  }
  return best;
}

inline float log_sum_exp(const float* logits, int32_t width) {
  const Highest top = highest(logits, width);
  if (top.has_nan) return __builtin_bit_cast(float, constants::kNanBits);
  if (top.value - top.value != 0.0f) return top.value;
  Lanes total = zero();
  for (int32_t i = 0; i < width; i += 16) {
    const int32_t rest = width - i < 16 ? width - i : 16;
    const Lanes x = rest == 16 ? load(logits + i) : load_first(logits + i, rest);
    total = total + keep(first_lanes(rest), exp_of_nonpositive(x - broadcast(top.value)));
  }
  float logs[16];
  store(logs, log(broadcast(sum(total))));
  return top.value + logs[0];
}

inline void gumbel_row(uint64_t seed, uint32_t choice, uint32_t position, uint32_t first_token,
                       int32_t count, float* out) {
  for (int32_t i = 0; i < count; i += 16)
    store_first(out + i, count - i < 16 ? count - i : 16,
                token_noise(seed, choice, position, first_token + static_cast<uint32_t>(i)));
}

inline void philox_rows(uint64_t key, const uint32_t counter[4], int32_t count, uint32_t* out) {
  for (int32_t i = 0; i < count; i += 16) {
    const IntLanes third = iota() + broadcast_int(counter[2] + static_cast<uint32_t>(i));
    const PhiloxWords words = philox({{broadcast_int(counter[0]), broadcast_int(counter[1]), third,
                                       broadcast_int(counter[3])}},
                                     key);
    for (int w = 0; w < 4; ++w) {
      uint32_t lanes[16];
      store_ints(lanes, words.word[w]);
      for (int32_t lane = 0; lane < 16 && i + lane < count; ++lane)
        out[(i + lane) * 4 + w] = lanes[lane];
    }
  }
}

inline constexpr SamplingKernels kSampling = {argmax, sample, log_sum_exp, gumbel_row, philox_rows};

}  // namespace farthing::FARTHING_ISA
