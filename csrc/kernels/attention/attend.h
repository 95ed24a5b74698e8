// Paged attention over stored keys and values: the walk over spans, blocks and query vectors.
#pragma once

#include "core/lanes.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/scratch.h"
#include "kernels/attention/softmax.h"
#include "kernels/attention/tiles.h"

namespace farthing::FARTHING_ISA {

// Up to kQueryVectors query vectors: vector i * heads + h is head `first_head + h` of token i.
struct QueryGroup {
  int32_t position;  // of token 0
  int32_t tokens;
  int32_t heads;

  int32_t vectors() const { return tokens * heads; }
};

// Consecutive tokens of a group that see the same part [low, high) of a block.
struct Run {
  int32_t first, tokens, low, high;
};

struct Workspace {
  float* queries;  // [head_dim][kQueryVectors]
  float* scores;   // [kQueryVectors][kBlockTokens]
  float* factors;  // [kQueryVectors]
  float* keys;     // one block in float: [head_dim][kBlockTokens]
  float* values;   // [kBlockTokens][head_dim]
  SoftmaxState total, span;

  Workspace(void* scratch, int32_t head_dim) {
    float* next = static_cast<float*>(scratch);
    const auto take = [&](size_t count) {
      float* part = next;
      next += count;
      return part;
    };
    const size_t matrix = static_cast<size_t>(kQueryVectors) * head_dim;
    const size_t plane = static_cast<size_t>(kBlockTokens) * head_dim;
    queries = take(matrix);
    scores = take(kQueryVectors * kBlockTokens);
    factors = take(kQueryVectors);
    keys = take(plane);
    values = take(plane);
    total = {take(kQueryVectors), take(kQueryVectors), take(matrix)};
    span = {take(kQueryVectors), take(kQueryVectors), take(matrix)};
  }
};

FARTHING_INLINE int32_t clamp_to_block(int32_t token) {
  return token < 0 ? 0 : (token > kBlockTokens ? kBlockTokens : token);
}

inline Run visible_run(const QueryGroup& group, int32_t window, int32_t base, int32_t token) {
  const int32_t position = group.position + token;
  const int32_t begin = window > 0 && position >= window ? position - window + 1 : 0;
  return {token, 1, clamp_to_block(begin - base), clamp_to_block(position + 1 - base)};
}

// Fills runs (at most kQueryVectors) with those that see something of the block; their number.
inline int32_t find_runs(const QueryGroup& group, int32_t window, int32_t base, Run* runs) {
  int32_t count = 0;
  for (int32_t token = 0; token < group.tokens; ++token) {
    const Run run = visible_run(group, window, base, token);
    if (run.low >= run.high) continue;
    Run* last = runs + count - 1;
    if (count > 0 && last->low == run.low && last->high == run.high &&
        last->first + last->tokens == token)
      ++last->tokens;
    else
      runs[count++] = run;
  }
  return count;
}

template <class Element>
inline void attend_run(const AttentionShape& shape, const Workspace& work, const QueryGroup& group,
                       const Run& run, const Element* keys, const Element* values,
                       const SoftmaxState& states) {
  const int32_t dim = shape.head_dim;
  const int32_t begin = run.first * group.heads, vectors = run.tokens * group.heads;
  float* scores = work.scores + begin * kBlockTokens;
  float* factors = work.factors + begin;
  const SoftmaxState state = states.from(begin, dim);
  each_tile(vectors, [&]<int kRows>(int32_t i) {
    score_tile<kRows>(keys, work.queries + begin + i, dim, scores + i * kBlockTokens);
  });
  softmax_block(shape, scores, vectors, run.low, run.high, state, factors);
  each_tile(vectors, [&]<int kRows>(int32_t i) {
    value_tile<kRows>(values, dim, run.low, run.high, scores + i * kBlockTokens, factors + i,
                      state.acc + static_cast<size_t>(i) * dim);
  });
}

template <class Element>
inline void attend_block(const AttentionShape& shape, const Workspace& work,
                         const QueryGroup& group, int32_t base, const uint8_t* plane,
                         size_t plane_bytes, const SoftmaxState& state) {
  Run runs[kQueryVectors];
  const int32_t count = find_runs(group, shape.window, base, runs);
  const Element* keys = reinterpret_cast<const Element*>(plane);
  const Element* values = reinterpret_cast<const Element*>(plane + plane_bytes);
  if (sizeof(Element) != sizeof(float) && group.vectors() > 2 * kRegisterRows) {
    // Many vectors: convert once instead of in every tile.
    for (int32_t i = 0; i < shape.head_dim * kBlockTokens; i += 16) {
      store(work.keys + i, load(keys + i));
      store(work.values + i, load(values + i));
    }
    for (int32_t r = 0; r < count; ++r)
      attend_run<float>(shape, work, group, runs[r], work.keys, work.values, state);
    return;
  }
  for (int32_t r = 0; r < count; ++r)
    attend_run<Element>(shape, work, group, runs[r], keys, values, state);
}

// The group's total over everything it sees.
inline void attend_group(const AttentionShape& shape, const KvLayout& layout, const uint8_t* pool,
                         int32_t layer, int32_t kv_head, const int32_t* block_table,
                         const QueryGroup& group, const Workspace& work) {
  constexpr int32_t kSpanBlocks = kSpanTokens / kBlockTokens;
  const int32_t oldest = shape.window > 0 && group.position >= shape.window
                             ? group.position - shape.window + 1
                             : 0;
  const int32_t first_block = oldest / kBlockTokens;
  const int32_t last_block = (group.position + group.tokens - 1) / kBlockTokens;
  const int32_t first_span = first_block / kSpanBlocks;
  reset(work.total, group.vectors(), shape.head_dim);
  for (int32_t span = first_span; span * kSpanBlocks <= last_block; ++span) {
    // The first span needs no merge: its results are the total.
    const SoftmaxState& state = span == first_span ? work.total : work.span;
    if (span != first_span) reset(state, group.vectors(), shape.head_dim);
    const int32_t begin = span * kSpanBlocks > first_block ? span * kSpanBlocks : first_block;
    const int32_t end = (span + 1) * kSpanBlocks - 1 < last_block ? (span + 1) * kSpanBlocks - 1
                                                                  : last_block;
    for (int32_t block = begin; block <= end; ++block) {
      const uint8_t* plane = pool + layout.offset(block_table[block], layer, kv_head);
      if (layout.type == KvType::f16)
        attend_block<Half>(shape, work, group, block * kBlockTokens, plane, layout.plane_bytes(),
                           state);
      else
        attend_block<float>(shape, work, group, block * kBlockTokens, plane, layout.plane_bytes(),
                            state);
    }
    if (span != first_span) merge_span(work.total, work.span, group.vectors(), shape.head_dim);
  }
}

inline void attend(const AttentionShape& shape, const KvLayout& layout, const uint8_t* pool,
                   int32_t layer, const AttentionTile& tile, const float* q, size_t q_stride,
                   float* out, size_t out_stride, void* scratch) {
  const int32_t dim = shape.head_dim;
  const int32_t heads_per_kv = shape.num_heads / shape.num_kv_heads;
  const Workspace work(scratch, dim);
  for (int32_t head = 0; head < heads_per_kv; head += kQueryVectors) {
    const int32_t heads = heads_per_kv - head < kQueryVectors ? heads_per_kv - head : kQueryVectors;
    const int32_t step = kQueryVectors / heads;
    const size_t column = static_cast<size_t>(tile.kv_head * heads_per_kv + head) * dim;
    for (int32_t token = 0; token < tile.num_rows; token += step) {
      const int32_t tokens = tile.num_rows - token < step ? tile.num_rows - token : step;
      const QueryGroup group = {tile.position + token, tokens, heads};
      const size_t row = static_cast<size_t>(tile.row + token);
      for (int32_t i = 0; i < tokens; ++i) {
        const float* source = q + (row + i) * q_stride + column;
        for (int32_t h = 0; h < heads; ++h)
          for (int32_t d = 0; d < dim; ++d)
            work.queries[static_cast<size_t>(d) * kQueryVectors + i * heads + h] =
                source[static_cast<size_t>(h) * dim + d];
      }
      attend_group(shape, layout, pool, layer, tile.kv_head, tile.block_table, group, work);
      for (int32_t i = 0; i < group.vectors(); ++i) {
        float* target = out + (row + i / heads) * out_stride + column +
                        static_cast<size_t>(i % heads) * dim;
        const float* acc = work.total.acc + static_cast<size_t>(i) * dim;
        const Lanes divisor = broadcast(work.total.sums[i]);
        for (int32_t d = 0; d < dim; d += 16) store(target + d, load(acc + d) / divisor);
      }
    }
  }
}

}  // namespace farthing::FARTHING_ISA
