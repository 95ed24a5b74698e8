// Plain views passed between the program player and the kernels. Nothing here owns memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/inline.h"

namespace farthing {

// Output rows interleaved in one packed row block; also the lanes of every float reduction pattern.
inline constexpr int kLanes = 16;
// Tokens in one KV block. A constant of the numerics (docs/architecture.md), not an option.
inline constexpr int kBlockTokens = 16;
// A query attends to its context in spans of this many tokens at fixed absolute positions; the
// spans' partial results are combined in ascending order. A constant of the numerics.
inline constexpr int kSpanTokens = 1024;

// How a matrix is stored: names, checkpoint blocks and codebooks in kernels/linear/schemes.cc, traits
// and packed form in kernels/linear/layout.h. A GGUF name also stands for the family of its own kind
// at that group: q4_0 is w4g32, q4_1 w4g32m, q5_0 w5g32, q5_1 w5g32m, q8_0 w8g32.
enum class Scheme : int32_t {
  f32, f16, bf16,
  q4_0, q4_1, q5_0, q5_1, q8_0,
  q4_k, q5_k, q6_k,
  iq4_nl,
  w4g64, w4g128, w4row,
  w4g64m, w4g128m,
  nf4g32, nf4g64, nf4g128,
  w5g16, w5g64, w5g128, w5row,
  w6g16, w6g32, w6g64, w6g128, w6row,
  w8g16, w8g64, w8g128, w8row
};
inline constexpr int kNumSchemes = static_cast<int>(Scheme::w8row) + 1;

// Columns that share one entry of Activations::sums.
inline constexpr int kSumRun = 16;
// A row's codes, scales and sums are filled up with zeros to whole groups, and whole runs of this.
inline constexpr int kSpanCols = 32;

// A weight matrix in the packed layout (kernels/linear/layout.h).
struct MatrixView {
  Scheme scheme;
  int32_t rows;  // outputs, as in the checkpoint; the last row block is padded with zero weights
  int32_t cols;  // inputs (K)
  const uint8_t* data;  // 64-byte aligned; row block b starts at data + b * row_block_bytes
  size_t row_block_bytes;
  int8_t codebook[16];  // values of the codes of codebook schemes
};

// Columns to which a row of `cols` activations is filled up when it is rounded in groups.
FARTHING_INLINE int32_t padded_cols(int32_t cols, int32_t group) {
  const int32_t unit = group > kSpanCols ? group : kSpanCols;
  return (cols + unit - 1) / unit * unit;
}

// Activations of T rows entering a linear op. The int8 fields are present when the weight's scheme
// has an activation group (see linear.h); float schemes read `values`.
struct Activations {
  const float* values;   // (T, cols), row stride = cols
  const int8_t* codes;   // (T, padded), row stride = code_stride bytes, in -127..127
  const float* scales;   // (T, groups())
  const int32_t* sums;   // (T, sums_per_row()): sum of the codes over each run of kSumRun columns
  int32_t cols;
  int32_t group;         // 16, 32, 64, 128 or 256
  size_t code_stride;

  FARTHING_INLINE int32_t groups() const { return padded_cols(cols, group) / group; }
  FARTHING_INLINE int32_t sums_per_row() const { return padded_cols(cols, group) / kSumRun; }
};

}  // namespace farthing
