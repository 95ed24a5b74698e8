// Rope, KV store and paged attention: contract shared by every instruction set.
#pragma once

#include "core/isa.h"
#include "core/types.h"

namespace farthing {

struct AttentionShape {
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;   // a multiple of 16
  float scale;        // score = (q . k) * scale
  float softcap;      // 0: none; else score = softcap * tanh(score / softcap)
  int32_t window;     // 0: none; else a query at position p sees keys at positions > p - window
};

// Consecutive query rows of one sequence against one kv head (all of its query heads).
struct AttentionTile {
  const int32_t* block_table;  // of the sequence
  int32_t position;            // absolute position of the first query row
  int32_t row;                 // its row in q and out
  int32_t num_rows;            // at most kMaxTileRows
  int32_t kv_head;
};
inline constexpr int kMaxTileRows = 16;

struct AttentionKernels {
  // cos/sin (rows, rotary_dim / 2) of positions[r] * inv_freq[i], in double then rounded, times
  // `magnitude` (1 unless YaRN/longrope).
  void (*rope_table)(const int32_t* positions, int32_t rows, const double* inv_freq,
                     int32_t half_dim, double magnitude, float* cos, float* sin);
  // Rotates head vectors in place, half-split pairing (x[i], x[i + rotary_dim/2]) of the first
  // 2 * half_dim dims:  a' = fma(a, cos, -(b * sin)); b' = fma(b, cos, a * sin).
  void (*rope_row)(float* heads, int32_t num_heads, int32_t head_dim, const float* cos,
                   const float* sin, int32_t half_dim);
  // Rounds k and v (num_kv_heads, head_dim) of one token to the pool's type and stores them.
  void (*store_kv)(const KvLayout& layout, uint8_t* pool, int32_t layer, int32_t block,
                   int32_t slot, const float* k, const float* v);
  // Reads only stored values. Per query: spans of kSpanTokens at fixed absolute positions; inside
  // a span, blocks ascending with an online softmax that advances block by block; spans combined
  // ascending. scratch: attention_scratch_bytes(shape) bytes, 64-byte aligned, one per thread.
  void (*attend)(const AttentionShape& shape, const KvLayout& layout, const uint8_t* pool,
                 int32_t layer, const AttentionTile& tile, const float* q, size_t q_stride,
                 float* out, size_t out_stride, void* scratch);
};
const AttentionKernels& attention_kernels(Isa isa);

size_t attention_scratch_bytes(const AttentionShape& shape);  // independent of context length

}  // namespace farthing
