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

// Blocks of one step, and what their keys and values are: of the cache's types, or converted.
struct BlockStep {
  Blocks blocks;
  KvType keys, values;
  BlockScales scales;
  int32_t num_blocks;
  bool ahead;  // later blocks are fetched while these are read
};

template <class Key>
inline void score_vectors(const BlockStep& step, const float* queries, int32_t vectors,
                          int32_t head_dim, float* scores) {
  const int32_t stride = padded_vectors(vectors) * kBlockTokens;
  each_tile(vectors, [&]<int kRows>(int32_t i) {
    float* target = scores + i * kBlockTokens;
    if (step.ahead && i == 0)
      score_tile<kRows, true, Key>(step.blocks, step.num_blocks, queries, head_dim, target, stride);
    else
      score_tile<kRows, false, Key>(step.blocks, step.num_blocks, queries + i, head_dim, target,
                                    stride);
  });
}

template <class Value>
inline void add_values(const BlockStep& step, const Weights& weights, int32_t vectors,
                       int32_t head_dim, float* acc) {
  each_tile(vectors, [&]<int kRows>(int32_t i) {
    const Weights of_tile = weights.from(i);
    float* target = acc + static_cast<size_t>(i) * head_dim;
    if (step.ahead && i == 0)
      value_tile<kRows, true, Value>(step.blocks, step.num_blocks, head_dim, of_tile, target);
    else
      value_tile<kRows, false, Value>(step.blocks, step.num_blocks, head_dim, of_tile, target);
  });
}

// `run` of the group against the blocks of a step, of which it sees the same tokens.
inline void attend_run(const AttentionShape& shape, const Workspace& work, const QueryGroup& group,
                       const Run& run, const BlockStep& step, const SoftmaxState& states) {
  const int32_t dim = shape.head_dim;
  const int32_t begin = run.first * group.heads, vectors = run.tokens * group.heads;
  const SoftmaxState state = states.from(begin, dim);
  with_element(step.keys, [&]<class Key>() {
    score_vectors<Key>(step, work.queries + begin, vectors, dim, work.scores);
  });
  softmax_step(shape, step.scales, work.scores, step.num_blocks, vectors, run.low, run.high, state,
               work.factors);
  const Weights weights = {work.scores, work.factors, padded_vectors(vectors), run.low, run.high};
  with_element(step.values, [&]<class Value>() {
    add_values<Value>(step, weights, vectors, dim, state.acc);
  });
}

template <class Key>
inline void convert_keys(BlockStep& step, int32_t head_dim, float* target) {
  constexpr int kDims = kRowDims<Key>;
  for (int32_t b = 0; b < step.num_blocks; ++b) {
    const uint8_t* source = step.blocks.keys[b];
    step.blocks.keys[b] = reinterpret_cast<const uint8_t*>(target);
    for (int32_t row = 0; row < head_dim / kDims; ++row) {
      fetch_ahead(source, step.blocks.ahead[b]);
      Lanes k[kDims];
      load_keys<Key>(source, k);
      source += bytes_of<Key>(kDims * kBlockTokens);
      for (int i = 0; i < kDims; ++i, target += kBlockTokens) store(target, k[i]);
    }
  }
  step.keys = KvType::f32;
}

template <class Value>
inline void convert_values(BlockStep& step, int32_t head_dim, float* target) {
  for (int32_t b = 0; b < step.num_blocks; ++b) {
    const uint8_t* source = step.blocks.values[b];
    step.blocks.values[b] = reinterpret_cast<const uint8_t*>(target);
    for (int32_t i = 0; i < head_dim; ++i, target += 16) {  // 16 numbers of 16 tokens' head_dim
      fetch_ahead(source, step.blocks.ahead[b]);
      store(target, load_values<Value>(source));
      source += bytes_of<Value>(16);
    }
  }
  step.values = KvType::f32;
}

// All runs of a group. For groups of several tiles the blocks are converted to float first: once is
// cheaper than in each.
inline void attend_step(const AttentionShape& shape, const Workspace& work,
                        const QueryGroup& group, const Run* runs, int32_t num_runs, BlockStep& step,
                        const SoftmaxState& state) {
  if (step.keys != KvType::f32 && group.vectors() > 2 * kRegisterRows) {
    with_element(step.keys,
                 [&]<class Key>() { convert_keys<Key>(step, shape.head_dim, work.keys); });
    with_element(step.values,
                 [&]<class Value>() { convert_values<Value>(step, shape.head_dim, work.values); });
    step.ahead = false;
  }
  for (int32_t r = 0; r < num_runs; ++r)
    attend_run(shape, work, group, runs[r], step, state);
}

// Blocks [begin, end) of the sequence for a group.
inline void attend_blocks(const AttentionShape& shape, const KvLayout& layout,
                          const uint8_t* planes, const int32_t* block_table, int32_t begin,
                          int32_t end, const QueryGroup& group, const Workspace& work,
                          const SoftmaxState& state) {
  const auto plane = [&](int32_t block) {
    return planes + static_cast<size_t>(block_table[block]) * layout.block_bytes();
  };
  const int32_t most = blocks_per_step(group.vectors(), layout.key_scales_offset());
  const int32_t newest_begin = first_visible(group.position + group.tokens - 1, shape.window);
  for (int32_t block = begin; block < end;) {
    // Several blocks only where every vector sees all of them.
    int32_t count = block * kBlockTokens >= newest_begin ? most : 1;
    while (count > 1 &&
           (block + count > end || (block + count) * kBlockTokens > group.position + 1))
      count /= 2;
    BlockStep step = {{}, layout.keys, layout.values, {}, count, true};
    for (int32_t b = 0; b < count; ++b) {
      const uint8_t* keys = plane(block + b);
      const int32_t later = block + b + count;
      const ptrdiff_t ahead = later < end ? plane(later) - keys : 0;
      step.blocks.keys[b] = keys;
      step.blocks.values[b] = keys + layout.values_offset();
      step.blocks.ahead[b] = ahead;
      const auto scales = [&](KvType type, size_t offset) -> const float* {
        if (!has_scales(type)) return nullptr;
        fetch_ahead(keys + offset, ahead);
        return reinterpret_cast<const float*>(keys + offset);
      };
      step.scales.keys[b] = scales(layout.keys, layout.key_scales_offset());
      step.scales.values[b] = scales(layout.values, layout.value_scales_offset());
    }
    Run runs[kQueryVectors];
    int32_t num_runs = 1;
    if (count > 1)
      runs[0] = {0, group.tokens, 0, kBlockTokens};
    else
      num_runs = find_runs(group, shape.window, block * kBlockTokens, runs);
    attend_step(shape, work, group, runs, num_runs, step, state);
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
    attend_blocks(shape, layout, planes, block_table, begin, end, group, work, state);
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
