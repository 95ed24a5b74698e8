// Routing and combining, written once in Lanes.
#pragma once

#include "core/lanes.h"
#include "core/vector_math.h"
#include "kernels/experts/experts.h"

namespace farthing::FARTHING_ISA {

// The largest of the logits; NaN if one of them is.
inline float largest_logit(const float* logits, int32_t experts) {
  Lanes best = broadcast(logits[0]);
  Mask nan = first_lanes(0);
  for (int32_t i = 0; i < experts; i += 16) {
    const int32_t rest = experts - i < 16 ? experts - i : 16;
    const Lanes x = load_first(logits + i, rest);  // 0 in absent lanes
    best = maximum(select(first_lanes(rest), x, best), best);
    nan = nan | unordered(x, x);
  }
  return mask_bits(nan) != 0 ? __builtin_bit_cast(float, constants::kNanBits) : largest(best);
}

// chosen: the ids of the top_k largest. values: their logits, in the same order.
inline void choose_experts(const float* logits, int32_t experts, int32_t top_k, int32_t* chosen,
                           float* values) {
  // First the values alone, descending: the last is the least that is chosen.
  int32_t held = 0;
  for (int32_t i = 0; i < experts; ++i) {
    const float x = logits[i];
    if (held == top_k && !(x > values[top_k - 1])) continue;
    int32_t at = held < top_k ? held++ : top_k - 1;
    for (; at > 0 && x > values[at - 1]; --at) values[at] = values[at - 1];
    values[at] = x;
  }
  const float least = values[top_k - 1];
  int32_t equals = 0;  // chosen ones that equal the least
  for (int32_t i = 0; i < top_k; ++i) equals += values[i] == least;
  int32_t n = 0;
  for (int32_t i = 0; i < experts && n < top_k; ++i) {
    const bool larger = logits[i] > least;
    if (!larger && (logits[i] != least || equals-- <= 0)) continue;
    chosen[n] = i;
    values[n++] = logits[i];
  }
}

inline void route_row(const float* logits, int32_t experts, int32_t top_k, bool normalize,
                      int32_t* chosen, float* weights) {
  const float top = largest_logit(logits, experts);
  if (top - top != 0.0f) {  // NaN or infinite
    for (int32_t i = 0; i < top_k; ++i) {
      chosen[i] = i;
      weights[i] = __builtin_bit_cast(float, constants::kNanBits);
    }
    return;
  }
  choose_experts(logits, experts, top_k, chosen, weights);
  each_lanes(top_k, [&](auto get, auto put, int64_t i) {
    put(weights + i, exp_of_nonpositive(get(weights + i) - broadcast(top)));
  });
  float total = 0.0f;
  if (normalize) {
    for (int32_t i = 0; i < top_k; ++i) total = total + weights[i];
  } else {
    Lanes sums = zero();
    for (int32_t i = 0; i < experts; i += 16) {
      const int32_t rest = experts - i < 16 ? experts - i : 16;
      const Lanes x = load_first(logits + i, rest);
      sums = sums + keep(first_lanes(rest), exp_of_nonpositive(x - broadcast(top)));
    }
    total = sum(sums);
  }
  each_lanes(top_k, [&](auto get, auto put, int64_t i) {
    put(weights + i, get(weights + i) / broadcast(total));
  });
}

inline void combine_row(const float* y, const int32_t* rows, const float* weights, int32_t count,
                        int32_t width, const float* add, float* out) {
  each_lanes(width, [&](auto get, auto put, int64_t column) {
    Lanes acc = zero();
    for (int32_t i = 0; i < count; ++i) {
      const float* row = y + static_cast<int64_t>(rows[i]) * width;
      acc = fma(broadcast(weights[i]), get(row + column), acc);
    }
    if (add != nullptr) acc = acc + get(add + column);
    put(out + column, acc);
  });
}

inline constexpr ExpertKernels kExperts = {route_row, combine_row};

}  // namespace farthing::FARTHING_ISA
