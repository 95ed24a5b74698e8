// Workspace of one attend call: its size and how it is divided.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/types.h"

namespace farthing {

// Query vectors (row of the batch, head of the group) that share one walk over the keys. An odd
// multiple of 16, so that columns of `queries` fall into different cache sets.
inline constexpr int kQueryVectors = 112;
// Arrays by vector are read and written sixteen at a time from any vector on.
inline constexpr int kVectorArray = kQueryVectors + 16;

// Rows of a block's scores; those past `vectors` hold nothing.
static constexpr int padded_vectors(int vectors) { return (vectors + 15) / 16 * 16; }

// Blocks taken in one step. Few vectors take several: the softmax's latency, and below four vectors
// the chains of fma, then overlap those of other blocks; as many as lie near in the cache.
inline constexpr int kMostBlocks = 4;
static constexpr int blocks_per_step(int vectors, size_t block_bytes) {
  const size_t near = (vectors <= 3 ? 64u << 10 : 16u << 10) / block_bytes;
  const size_t fit = static_cast<size_t>(kQueryVectors / padded_vectors(vectors));
  const size_t most = near < fit ? near : fit;
  return most >= 4 ? 4 : (most >= 2 ? 2 : 1);
}
static_assert(kMostBlocks == 4);

// Floats, for a head_dim. All parts are multiples of 16, so each keeps a 64-byte alignment.
static constexpr size_t attention_scratch_floats(size_t head_dim) {
  const size_t queries_and_accumulators = 3 * kQueryVectors * head_dim;
  const size_t scores_and_arrays = kVectorArray * (kBlockTokens + 5);
  const size_t blocks = 2 * kMostBlocks * kBlockTokens * head_dim;
  return queries_and_accumulators + scores_and_arrays + blocks;
}
static_assert(kQueryVectors % 16 == 0);

}  // namespace farthing
