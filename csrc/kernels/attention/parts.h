// Attention of a tile in parts, each of some spans of its context, and their merge.
#pragma once

#include <cstring>

#include "core/lanes.h"
#include "kernels/attention/attend.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/softmax.h"

namespace farthing::FARTHING_ISA {

// A part as arrays by vector: m, l, then acc.
FARTHING_INLINE SoftmaxState part_state(const AttentionShape& shape, int32_t num_rows,
                                        float* part) {
  const size_t vectors = static_cast<size_t>(num_rows) *
                         static_cast<size_t>(shape.num_heads / shape.num_kv_heads);
  return {part, part + vectors, part + 2 * vectors};
}

inline void attend_spans(const AttentionShape& shape, const KvLayout& layout, const uint8_t* pool,
                         int32_t layer, const AttentionTile& tile, SpanRange spans, const float* q,
                         size_t q_stride, float* part, void* scratch) {
  const int32_t dim = shape.head_dim;
  const Workspace work(scratch, dim);
  const uint8_t* planes = pool + layout.offset(0, layer, tile.kv_head);
  const SoftmaxState state = part_state(shape, tile.num_rows, part);
  each_group(shape, tile, [&](const QueryGroup& group, size_t row, size_t column, size_t first) {
    gather_queries(group, dim, q + row * q_stride + column, q_stride, work.queries);
    attend_group(shape, layout, planes, tile.block_table, spans, group, work);
    const size_t vectors = static_cast<size_t>(group.vectors()), width = static_cast<size_t>(dim);
    std::memcpy(state.highest + first, work.total.highest, vectors * sizeof(float));
    std::memcpy(state.sums + first, work.total.sums, vectors * sizeof(float));
    std::memcpy(state.acc + first * width, work.total.acc, vectors * width * sizeof(float));
  });
}

inline void merge_parts(const AttentionShape& shape, const AttentionTile& tile, float* parts,
                        int32_t num_parts, size_t stride, float* out, size_t out_stride) {
  const int32_t dim = shape.head_dim;
  const SoftmaxState total = part_state(shape, tile.num_rows, parts);
  each_group(shape, tile, [&](const QueryGroup& group, size_t row, size_t column, size_t first) {
    const int32_t vector = static_cast<int32_t>(first);
    const SoftmaxState result = total.from(vector, dim);
    for (int32_t i = 1; i < num_parts; ++i) {
      float* part = parts + static_cast<size_t>(i) * stride;
      const SoftmaxState span = part_state(shape, tile.num_rows, part).from(vector, dim);
      merge_span(result, span, group.vectors(), dim);
    }
    write_results(group, dim, result, out + row * out_stride + column, out_stride);
  });
}

}  // namespace farthing::FARTHING_ISA
