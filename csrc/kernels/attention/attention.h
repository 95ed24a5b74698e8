// Rope, KV store and paged attention: contract shared by every instruction set.
//
// Numerics of one query over its visible keys (docs/architecture.md, "Exact means bit for bit").
// Keys are visited in ascending blocks of kBlockTokens; visible ones of a block are a range of
// tokens, the others are selected out. m, l and acc start as -infinity, 0 and 0. For each block
// with a visible token:
//   s = 0; for d ascending: s = fma(q[d], k[d], s);
//          keys with scales: k[d] is the code, then s = s * (key scale of the token)
//          s = s * scale;  with a softcap: s = softcap * tanh(s / softcap)
//   m' = max(m, visible s);  c = exp(m - m');  p = exp(s - m'), 0 where not visible
//   l = fma(l, c, sum of the 16 p by the fixed tree: lanes 8 apart, then 4, 2, 1)
//          values with scales: v[t] is the code and from here on p[t] = p[t] * (the token's scale)
//   acc = acc * c; for visible t ascending: acc = fma(p[t], v[t], acc);  m = m'
// That restarts at every multiple of kSpanTokens. The first span that holds a visible token is the
// total (M, L, A) as it is; each further one is merged into it:
//   M' = max(M, m);  C = exp(M - M');  c = exp(m - M')
//   L = fma(L, C, l * c);  A = fma(A, C, acc * c);  M = M'
// At the end out = A / L. Queries see keys at their own position and before. A query whose stored
// keys, values or own vector hold NaN, or whose first block's scores are all -infinity, gets NaN.
// With codes so does one that sees a token of which a key, or value, was not finite.
#pragma once

#include "core/isa.h"
#include "core/kv_layout.h"
#include "core/types.h"

namespace farthing {

struct AttentionShape {
  int32_t num_heads;
  int32_t num_kv_heads;  // divides num_heads
  int32_t head_dim;      // a multiple of 16
  float scale;           // score = (q . k) * scale
  float softcap;         // 0: none; else score = softcap * tanh(score / softcap)
  int32_t window;        // 0: none; else a query at position p sees keys at positions > p - window
};

// Spans [begin, end) of a context, counted from its start.
struct SpanRange {
  int32_t begin, end;
  int32_t count() const { return end - begin; }
};

// Consecutive query rows of one sequence against one kv head (all of its query heads).
struct AttentionTile {
  const int32_t* block_table;  // of the sequence
  int32_t position;            // absolute position of the first query row
  int32_t row;                 // its row in q and out
  int32_t num_rows;            // any number; kMaxTileRows suffice to be fast
  int32_t kv_head;
};
inline constexpr int kMaxTileRows = 16;

struct AttentionKernels {
  // cos/sin (rows, half_dim) of positions[r] * inv_freq[i], in double then rounded, times
  // `magnitude` (1 unless YaRN/longrope). Sine and cosine are right to 1 ulp of a double for
  // angles up to 2^18; position 131,072 is well inside.
  void (*rope_table)(const int32_t* positions, int32_t rows, const double* inv_freq,
                     int32_t half_dim, double magnitude, float* cos, float* sin);
  // Rotates head vectors in place, half-split pairing (x[i], x[i + half_dim]) of the first
  // 2 * half_dim dims:  a' = fma(a, cos, -(b * sin)); b' = fma(b, cos, a * sin).
  void (*rope_row)(float* heads, int32_t num_heads, int32_t head_dim, const float* cos,
                   const float* sin, int32_t half_dim);
  // Rounds k and v (num_kv_heads, head_dim) of one token to the pool's types and stores them.
  // Nearest even; beyond fp16's range to infinity. Codes: of each head, with n = 127 of 8 bits or 7
  // of 4, scale = absmax / n and code = round_to_nearest_even(x * (n / absmax)), in -n..n; an
  // absmax below 1e-30 gives scale 0 and codes 0; a NaN or infinity among the head's numbers gives
  // a scale of that kind and codes 0.
  void (*store_kv)(const KvLayout& layout, uint8_t* pool, int32_t layer, int32_t block,
                   int32_t slot, const float* k, const float* v);
  // Reads only stored values. q and out: rows of num_heads * head_dim, strides in floats. Any
  // split of the rows into tiles gives the same bits. scratch: attention_scratch_bytes(shape)
  // bytes, 64-byte aligned, one per thread.
  void (*attend)(const AttentionShape& shape, const KvLayout& layout, const uint8_t* pool,
                 int32_t layer, const AttentionTile& tile, const float* q, size_t q_stride,
                 float* out, size_t out_stride, void* scratch);
  // The same in parts that several threads may compute. attend_spans leaves m, l and acc of some
  // spans in `part`, attention_part_floats(shape, tile.num_rows) floats: of one span, or of several
  // if the first that the tile sees is among them, then their total. merge_parts makes out of all
  // parts of a tile, `stride` floats apart in ascending order, and overwrites the first of them.
  void (*attend_spans)(const AttentionShape& shape, const KvLayout& layout, const uint8_t* pool,
                       int32_t layer, const AttentionTile& tile, SpanRange spans, const float* q,
                       size_t q_stride, float* part, void* scratch);
  void (*merge_parts)(const AttentionShape& shape, const AttentionTile& tile, float* parts,
                      int32_t num_parts, size_t stride, float* out, size_t out_stride);
};
const AttentionKernels& attention_kernels(Isa isa);

// The oldest position that a query at `position` sees.
static constexpr int32_t first_visible(int32_t position, int32_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

// The spans of which some query of the tile sees something.
static constexpr SpanRange visible_spans(const AttentionTile& tile, int32_t window) {
  return {first_visible(tile.position, window) / kSpanTokens,
          (tile.position + tile.num_rows - 1) / kSpanTokens + 1};
}

static constexpr size_t attention_part_floats(const AttentionShape& shape, int32_t num_rows) {
  return static_cast<size_t>(num_rows) * static_cast<size_t>(shape.num_heads / shape.num_kv_heads) *
         (static_cast<size_t>(shape.head_dim) + 2);
}

// Independent of the context's length.
size_t attention_scratch_bytes(const AttentionShape& shape);

// out[i] = theta^(-2i / dim) for i < dim / 2, as exp(-(2i / dim) * log(theta)) in double: the
// relative error is below 2^-48, an angle's at position 131,072 below 1e-9. theta > 0.
void rope_inverse_frequencies(double theta, int32_t dim, double* out);

}  // namespace farthing
