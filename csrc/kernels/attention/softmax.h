// The online softmax's step over one block (Milakov and Gimelshein, 2018), and the merge of spans.
#pragma once

#include "core/lanes.h"
#include "core/types.h"
#include "core/vector_math.h"
#include "kernels/attention/attention.h"

namespace farthing::FARTHING_ISA {

// Running results of the query vectors, by vector.
struct SoftmaxState {
  float* highest;  // m
  float* sums;     // l; 0 as long as no key was seen
  float* acc;      // [vector][head_dim]

  SoftmaxState from(int32_t vector, int32_t head_dim) const {
    return {highest + vector, sums + vector, acc + static_cast<size_t>(vector) * head_dim};
  }
};

FARTHING_INLINE Lanes negative_infinity() {
  return as_float(broadcast_int(constants::kInfinityBits | constants::kSignBit));
}

inline void reset(const SoftmaxState& state, int32_t vectors, int32_t head_dim) {
  for (int32_t i = 0; i < vectors; ++i) {
    state.highest[i] = -__builtin_inff();
    state.sums[i] = 0.0f;
    for (int32_t d = 0; d < head_dim; d += 16)
      store(state.acc + static_cast<size_t>(i) * head_dim + d, zero());
  }
}

// Turns `vectors` rows of 16 raw scores into p, advances highest and sums, and gives in factors
// what acc must be multiplied by. Only tokens [low, high) of the block are visible.
inline void softmax_block(const AttentionShape& shape, float* scores, int32_t vectors, int32_t low,
                          int32_t high, const SoftmaxState& state, float* factors) {
  const bool whole = low == 0 && high == kBlockTokens;
  const Mask visible = lanes_between(low, high);
  const Lanes scale = broadcast(shape.scale), cap = broadcast(shape.softcap);
  for (int32_t i = 0; i < vectors; ++i) {
    float* row = scores + i * kBlockTokens;
    Lanes s = load(row) * scale;
    if (shape.softcap != 0.0f) s = cap * tanh(s / cap);
    if (!whole) s = select(visible, s, negative_infinity());
    store(row, s);
    factors[i] = largest(s);
  }
  for (int32_t i = 0; i < vectors; i += 16) {
    const int32_t n = vectors - i < 16 ? vectors - i : 16;
    const Lanes before = load_first(state.highest + i, n);
    const Lanes now = maximum(load_first(factors + i, n), before);
    store_first(state.highest + i, n, now);
    store_first(factors + i, n, exp_of_nonpositive(before - now));
  }
  for (int32_t i = 0; i < vectors; ++i) {
    float* row = scores + i * kBlockTokens;
    Lanes p = exp_of_nonpositive(load(row) - broadcast(state.highest[i]));
    if (!whole) p = keep(visible, p);
    store(row, p);
    state.sums[i] = __builtin_fmaf(state.sums[i], factors[i], sum(p));
  }
}

inline void merge_span(const SoftmaxState& total, const SoftmaxState& span, int32_t vectors,
                       int32_t head_dim) {
  for (int32_t i = 0; i < vectors; ++i) {
    if (span.sums[i] == 0.0f) continue;
    const Lanes old_highest = broadcast(total.highest[i]), new_highest = broadcast(span.highest[i]);
    const bool first = total.sums[i] == 0.0f;
    const Lanes now = maximum(new_highest, old_highest);
    const Lanes keep_old = exp_of_nonpositive(old_highest - now);
    const Lanes keep_new = exp_of_nonpositive(new_highest - now);
    const auto merged = [&](Lanes old_value, Lanes new_value) {
      return first ? new_value : fma(old_value, keep_old, new_value * keep_new);
    };
    store_first(total.highest + i, 1, first ? new_highest : now);
    store_first(total.sums + i, 1, merged(broadcast(total.sums[i]), broadcast(span.sums[i])));
    for (int32_t d = 0; d < head_dim; d += 16) {
      float* target = total.acc + static_cast<size_t>(i) * head_dim + d;
      store(target, merged(load(target), load(span.acc + static_cast<size_t>(i) * head_dim + d)));
    }
  }
}

}  // namespace farthing::FARTHING_ISA
