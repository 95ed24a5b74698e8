// The online softmax's step over one block (Milakov and Gimelshein, 2018), and the merge of spans.
#pragma once

#include "core/lanes.h"
#include "core/types.h"
#include "core/vector_math.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/scratch.h"

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

// Of the tokens of each block of a step; null for caches without scales.
struct BlockScales {
  const float* keys[kMostBlocks] = {};
  const float* values[kMostBlocks] = {};
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

// Of each row, in its lane; one row alone need not wait for the tree of sixteen.
FARTHING_INLINE Lanes largest_of(const float* rows, int32_t count) {
  return count == 1 ? broadcast(largest(load(rows))) : largest_of_rows(rows, count);
}
FARTHING_INLINE Lanes sum_of(const float* rows, int32_t count) {
  return count == 1 ? broadcast(sum(load(rows))) : sum_of_rows(rows, count);
}

// Scales one row of raw scores and takes out what is not visible.
FARTHING_INLINE void scale_scores(const AttentionShape& shape, const float* key_scales, bool whole,
                                  Mask visible, float* row) {
  Lanes s = load(row);
  if (key_scales != nullptr) s = s * load(key_scales);
  s = s * broadcast(shape.scale);
  if (shape.softcap != 0.0f)
    s = broadcast(shape.softcap) * tanh(s / broadcast(shape.softcap));
  if (!whole) s = select(visible, s, negative_infinity());
  store(row, s);
}

// One step of the online softmax over `blocks` consecutive blocks, of which the tokens [low, high)
// are visible to `vectors` query vectors. Turns the rows of 16 raw scores into p, advances highest
// and sums, and gives in factors what acc must be multiplied by before each block. Row i of block
// b is row b * padded_vectors(vectors) + i of scores and factors. With scales of the tokens, raw
// scores are multiplied by those of the keys, and p, once summed, by those of the values.
//
// Sixteen vectors at a time, those of the last group that do not exist included: their rows hold
// anything, and what follows in highest and sums is written back as it was.
inline void softmax_step(const AttentionShape& shape, const BlockScales& scales, float* scores, int32_t blocks,
                         int32_t vectors, int32_t low, int32_t high, const SoftmaxState& state,
                         float* factors) {
  const bool whole = low == 0 && high == kBlockTokens;
  const Mask visible = lanes_between(low, high);
  const int32_t padded = padded_vectors(vectors);
  for (int32_t first = 0; first < vectors; first += 16) {
    const int32_t count = vectors - first < 16 ? vectors - first : 16;
    const Mask present = first_lanes(count);
    const Lanes highest_before = load(state.highest + first);
    const Lanes sums_before = load(state.sums + first);
    Lanes highest = highest_before, sums = sums_before;
    for (int32_t b = 0; b < blocks; ++b) {
      float* rows = scores + (b * padded + first) * kBlockTokens;
      for (int32_t i = 0; i < count; ++i)
        scale_scores(shape, scales.keys[b], whole, visible, rows + i * kBlockTokens);
    }
    alignas(64) float maxima[kMostBlocks][16];
    for (int32_t b = 0; b < blocks; ++b) {
      const float* rows = scores + (b * padded + first) * kBlockTokens;
      const Lanes now = maximum(largest_of(rows, count), highest);
      store(factors + b * padded + first, exp_of_nonpositive(highest - now));
      store(maxima[b], now);
      highest = now;
    }
    for (int32_t b = 0; b < blocks; ++b) {
      float* rows = scores + (b * padded + first) * kBlockTokens;
      for (int32_t i = 0; i < count; ++i) {
        float* row = rows + i * kBlockTokens;
        const Lanes p = exp_of_nonpositive(load(row) - broadcast(maxima[b][i]));
        store(row, whole ? p : keep(visible, p));
      }
    }
    for (int32_t b = 0; b < blocks; ++b) {
      float* rows = scores + (b * padded + first) * kBlockTokens;
      sums = fma(sums, load(factors + b * padded + first), sum_of(rows, count));
      if (scales.values[b] == nullptr) continue;
      const Lanes value_scales = load(scales.values[b]);
      for (int32_t i = 0; i < count; ++i)
        store(rows + i * kBlockTokens, load(rows + i * kBlockTokens) * value_scales);
    }
    store(state.highest + first, select(present, highest, highest_before));
    store(state.sums + first, select(present, sums, sums_before));
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
