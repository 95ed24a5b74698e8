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
  float* scores;   // [kVectorArray][kBlockTokens], block by block
  float* factors;  // [kVectorArray], likewise
  float* keys;     // of a step's blocks in float: [kMostBlocks][head_dim][kBlockTokens]
  float* values;   // [kMostBlocks][kBlockTokens][head_dim]
  SoftmaxState total, span;

  Workspace(void* scratch, int32_t head_dim) {
    float* next = static_cast<float*>(scratch);
    const auto take = [&](size_t count) {
      float* part = next;
      next += count;
      return part;
    };
    const size_t matrix = static_cast<size_t>(kQueryVectors) * head_dim;
    const size_t planes = static_cast<size_t>(kMostBlocks) * kBlockTokens * head_dim;
    queries = take(matrix);
    scores = take(kVectorArray * kBlockTokens);
    factors = take(kVectorArray);
    keys = take(planes);
    values = take(planes);
    total = {take(kVectorArray), take(kVectorArray), take(matrix)};
    span = {take(kVectorArray), take(kVectorArray), take(matrix)};
  }
};

FARTHING_INLINE int32_t clamp_to_block(int32_t token) {
  return token < 0 ? 0 : (token > kBlockTokens ? kBlockTokens : token);
}

inline Run visible_run(const QueryGroup& group, int32_t window, int32_t base, int32_t token) {
  const int32_t position = group.position + token;
  return {token, 1, clamp_to_block(first_visible(position, window) - base),
          clamp_to_block(position + 1 - base)};
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

// One step: `run` of the group against consecutive blocks of which it sees the same tokens.
template <bool kAhead, class Element>
inline void attend_run(const AttentionShape& shape, const Workspace& work, const QueryGroup& group,
                       const Run& run, const Blocks<Element>& blocks, const BlockScales& scales,
                       int32_t num_blocks, const SoftmaxState& states) {
  const int32_t dim = shape.head_dim;
  const int32_t begin = run.first * group.heads, vectors = run.tokens * group.heads;
  const int32_t padded = padded_vectors(vectors);
  const SoftmaxState state = states.from(begin, dim);
  each_tile(vectors, [&]<int kRows>(int32_t i) {
    const float* queries = work.queries + begin + i;
    float* scores = work.scores + i * kBlockTokens;
    if (kAhead && i == 0)
      score_tile<kRows, true>(blocks, num_blocks, queries, dim, scores, padded * kBlockTokens);
    else
      score_tile<kRows, false>(blocks, num_blocks, queries, dim, scores, padded * kBlockTokens);
  });
  softmax_step(shape, scales, work.scores, num_blocks, vectors, run.low, run.high, state,
               work.factors);
  each_tile(vectors, [&]<int kRows>(int32_t i) {
    const Weights weights = {work.scores + i * kBlockTokens, work.factors + i, padded, run.low,
                             run.high};
    float* acc = state.acc + static_cast<size_t>(i) * dim;
    if (kAhead && i == 0)
      value_tile<kRows, true>(blocks, num_blocks, dim, weights, acc);
    else
      value_tile<kRows, false>(blocks, num_blocks, dim, weights, acc);
  });
}

// The same blocks in float, for groups of several tiles: converting once is cheaper than in each.
template <class Element>
inline Blocks<float> converted(const Workspace& work, const Blocks<Element>& blocks,
                               int32_t num_blocks, int32_t head_dim) {
  Blocks<float> result;
  const int32_t size = head_dim * kBlockTokens;
  for (int32_t b = 0; b < num_blocks; ++b) {
    float* keys = work.keys + b * size;
    float* values = work.values + b * size;
    for (int32_t i = 0; i < size; i += 16) {
      fetch_ahead(blocks.keys[b] + i, blocks.ahead[b]);
      store(keys + i, load(blocks.keys[b] + i));
    }
    for (int32_t i = 0; i < size; i += 16) {
      fetch_ahead(blocks.values[b] + i, blocks.ahead[b]);
      store(values + i, load(blocks.values[b] + i));
    }
    result.keys[b] = keys;
    result.values[b] = values;
  }
  return result;
}

// One step for all runs of a group.
template <class Element>
inline void attend_step(const AttentionShape& shape, const Workspace& work,
                        const QueryGroup& group, const Run* runs, int32_t num_runs,
                        const Blocks<Element>& blocks, const BlockScales& scales,
                        int32_t num_blocks, const SoftmaxState& state) {
  if (sizeof(Element) != sizeof(float) && group.vectors() > 2 * kRegisterRows) {
    const Blocks<float> floats = converted(work, blocks, num_blocks, shape.head_dim);
    for (int32_t r = 0; r < num_runs; ++r)
      attend_run<false>(shape, work, group, runs[r], floats, scales, num_blocks, state);
    return;
  }
  for (int32_t r = 0; r < num_runs; ++r)
    attend_run<true>(shape, work, group, runs[r], blocks, scales, num_blocks, state);
}

// Blocks [begin, end) of the sequence for a group.
template <class Element>
inline void attend_blocks(const AttentionShape& shape, const KvLayout& layout,
                          const uint8_t* planes, const int32_t* block_table, int32_t begin,
                          int32_t end, const QueryGroup& group, const Workspace& work,
                          const SoftmaxState& state) {
  const auto plane = [&](int32_t block) {
    return planes + static_cast<size_t>(block_table[block]) * layout.block_bytes();
  };
  const int32_t most = blocks_per_step(group.vectors(), 2 * layout.plane_bytes());
  const int32_t newest_begin = first_visible(group.position + group.tokens - 1, shape.window);
  for (int32_t block = begin; block < end;) {
    // Several blocks only where every vector sees all of them.
    int32_t count = block * kBlockTokens >= newest_begin ? most : 1;
    while (count > 1 &&
           (block + count > end || (block + count) * kBlockTokens > group.position + 1))
      count /= 2;
    Blocks<Element> blocks;
    BlockScales scales;
    for (int32_t b = 0; b < count; ++b) {
      const uint8_t* keys = plane(block + b);
      const int32_t later = block + b + count;
      blocks.keys[b] = reinterpret_cast<const Element*>(keys);
      blocks.values[b] = reinterpret_cast<const Element*>(keys + layout.plane_bytes());
      blocks.ahead[b] = later < end ? plane(later) - keys : 0;
      if constexpr (sizeof(Element) == 1) {
        scales.keys[b] = reinterpret_cast<const float*>(keys + 2 * layout.plane_bytes());
        scales.values[b] = scales.keys[b] + kBlockTokens;
        fetch_ahead(scales.keys[b], blocks.ahead[b]);
        fetch_ahead(scales.values[b], blocks.ahead[b]);
      }
    }
    Run runs[kQueryVectors];
    int32_t num_runs = 1;
    if (count > 1)
      runs[0] = {0, group.tokens, 0, kBlockTokens};
    else
      num_runs = find_runs(group, shape.window, block * kBlockTokens, runs);
    attend_step(shape, work, group, runs, num_runs, blocks, scales, count, state);
    block += count;
  }
}

// The group's total over the spans, which begin with the first that the tile sees or are one alone.
// planes: the pool at this layer and kv head.
inline void attend_group(const AttentionShape& shape, const KvLayout& layout,
                         const uint8_t* planes, const int32_t* block_table, SpanRange spans,
                         const QueryGroup& group, const Workspace& work) {
  constexpr int32_t kSpanBlocks = kSpanTokens / kBlockTokens;
  const int32_t first_block = first_visible(group.position, shape.window) / kBlockTokens;
  const int32_t end_block = (group.position + group.tokens - 1) / kBlockTokens + 1;
  const int32_t vectors = group.vectors();
  bool merging = false;  // the first span needs none: its results are the total
  reset(work.total, vectors, shape.head_dim);
  for (int32_t span = spans.begin; span < spans.end; ++span) {
    const int32_t span_begin = span * kSpanBlocks, span_end = span_begin + kSpanBlocks;
    const int32_t begin = span_begin > first_block ? span_begin : first_block;
    const int32_t end = span_end < end_block ? span_end : end_block;
    if (begin >= end) continue;
    const SoftmaxState& state = merging ? work.span : work.total;
    if (merging) reset(state, vectors, shape.head_dim);
    switch (layout.type) {
      case KvType::f32:
        attend_blocks<float>(shape, layout, planes, block_table, begin, end, group, work, state);
        break;
      case KvType::f16:
        attend_blocks<Half>(shape, layout, planes, block_table, begin, end, group, work, state);
        break;
      case KvType::i8:
        attend_blocks<int8_t>(shape, layout, planes, block_table, begin, end, group, work, state);
        break;
    }
    if (merging) merge_span(work.total, work.span, vectors, shape.head_dim);
    merging = true;
  }
}

// Calls visit(group, row, column, first) for the tile's groups: the row of q and out of their first
// token, the column of their first head, and how many vectors the groups before have.
template <class Visit>
inline void each_group(const AttentionShape& shape, const AttentionTile& tile, Visit visit) {
  const int32_t heads_per_kv = shape.num_heads / shape.num_kv_heads;
  size_t first = 0;
  for (int32_t head = 0; head < heads_per_kv; head += kQueryVectors) {
    const int32_t heads = heads_per_kv - head < kQueryVectors ? heads_per_kv - head : kQueryVectors;
    const int32_t step = kQueryVectors / heads;
    const size_t column = static_cast<size_t>(tile.kv_head * heads_per_kv + head) *
                          static_cast<size_t>(shape.head_dim);
    for (int32_t token = 0; token < tile.num_rows; token += step) {
      const int32_t tokens = tile.num_rows - token < step ? tile.num_rows - token : step;
      const QueryGroup group = {tile.position + token, tokens, heads};
      visit(group, static_cast<size_t>(tile.row + token), column, first);
      first += static_cast<size_t>(group.vectors());
    }
  }
}

inline void gather_queries(const QueryGroup& group, int32_t dim, const float* q, size_t q_stride,
                           float* queries) {
  for (int32_t i = 0; i < group.tokens; ++i) {
    const float* source = q + static_cast<size_t>(i) * q_stride;
    for (int32_t h = 0; h < group.heads; ++h)
      for (int32_t d = 0; d < dim; ++d)
        queries[static_cast<size_t>(d) * kQueryVectors + i * group.heads + h] =
            source[static_cast<size_t>(h) * dim + d];
  }
}

// out: at the group's first row and head.
inline void write_results(const QueryGroup& group, int32_t dim, const SoftmaxState& state,
                          float* out, size_t out_stride) {
  for (int32_t i = 0; i < group.vectors(); ++i) {
    float* target = out + static_cast<size_t>(i / group.heads) * out_stride +
                    static_cast<size_t>(i % group.heads) * dim;
    const float* acc = state.acc + static_cast<size_t>(i) * dim;
    const Lanes divisor = broadcast(state.sums[i]);
    for (int32_t d = 0; d < dim; d += 16) store(target + d, load(acc + d) / divisor);
  }
}

inline void attend(const AttentionShape& shape, const KvLayout& layout, const uint8_t* pool,
                   int32_t layer, const AttentionTile& tile, const float* q, size_t q_stride,
                   float* out, size_t out_stride, void* scratch) {
  const int32_t dim = shape.head_dim;
  const Workspace work(scratch, dim);
  const uint8_t* planes = pool + layout.offset(0, layer, tile.kv_head);
  const SpanRange spans = visible_spans(tile, shape.window);
  each_group(shape, tile, [&](const QueryGroup& group, size_t row, size_t column, size_t) {
    gather_queries(group, dim, q + row * q_stride + column, q_stride, work.queries);
    attend_group(shape, layout, planes, tile.block_table, spans, group, work);
    write_results(group, dim, work.total, out + row * out_stride + column, out_stride);
  });
}

}  // namespace farthing::FARTHING_ISA
