// Linear ops over packed weights: contract shared by every instruction set.
//
// Numerics, per output (docs/architecture.md, "Exact means bit for bit"):
//   float schemes    for each run of kFloatRun columns ascending: chain = 0; for k in it ascending:
//                    chain = fma(w[k], x[k], chain). acc = the first chain, to which the others are
//                    added in ascending order: acc = acc + chain
//   one-level        for each activation group ascending: p = w_scale * a_scale (one rounding),
//                    acc = fma(p, float(sum of value * a over the group, int32), acc), value being
//                    code - zero or codebook[code]; then, with a minimum:
//                    acc = fma(w_min * a_scale, float(asum), acc)
//   two-level        for each 256-super-block ascending: p = d * a_scale, with
//                    isum = sum over sub-blocks of sub_scale * (sum of (code - zero) * a), int32:
//                    acc = fma(p, float(isum), acc), then, with minimums (q4_k, q5_k):
//                    acc = fma(-(dmin * a_scale), float(sum of sub_min * asum), acc)
//   epilogue         y = acc; if bias: y = y + bias[row]; if add: y = y + add[t][row]
// Activations are rounded in the weights' groups; in groups of 64 where a row has one scale.
#pragma once

#include <optional>
#include <utility>

#include "core/isa.h"
#include "core/types.h"

namespace farthing {

// Columns of a chain of a float scheme (docs/decisions/float-chains.md).
inline constexpr int kFloatRun = 256;
// Every group in which activations are rounded divides it.
inline constexpr int kMaxActivationGroup = 256;

struct SchemeInfo {
  Scheme scheme;
  const char* name;     // GGUF spelling in lower case where GGUF has it: "q4_0", "f16", ...
  const char* alias;    // our name for a GGUF scheme that is one of our families, or null
  int32_t block_cols;   // columns in one checkpoint block (1 for float schemes); 0: in no checkpoint
  int32_t block_bytes;  // bytes of one checkpoint block
  const int8_t* codebook;  // 16 values, of codebook schemes
};
const SchemeInfo& scheme_info(Scheme scheme);
int32_t activation_group(Scheme scheme);  // 0: float activations

size_t row_block_bytes(Scheme scheme, int32_t cols);

// Packs `count` rows of checkpoint bytes (row-major blocks) into rows first_row.. of a zeroed
// packed matrix. Codes, scales and minimums are kept as they are.
void pack_rows(Scheme scheme, int32_t cols, uint8_t* packed, int32_t first_row, int32_t count,
               const uint8_t* source);

// As pack_rows, from codes (count, cols), one a byte with the zero point 2^(bits - 1) where the
// scheme has one, and the bits of fp16 scales and minimums (count, groups). One-level schemes only.
// Codes must be below 2^bits.
void pack_codes(Scheme scheme, int32_t cols, uint8_t* packed, int32_t first_row, int32_t count,
                const uint8_t* codes, const uint16_t* scales, const uint16_t* minimums);

// Byte at which the first NaN or infinity among a scheme's weights, or its scales and minimums,
// starts in checkpoint bytes; `bytes` if all are finite. `bytes` is a multiple of the block.
size_t first_nonfinite(Scheme scheme, const uint8_t* source, size_t bytes);

// (row, column) of a NaN or infinity among a packed matrix's weights, or its scales and minimums
// (then the first column of the group), the first in the order of the bytes; none if all are finite.
std::optional<std::pair<int32_t, int32_t>> first_nonfinite(const MatrixView& w);

struct LinearKernels {
  // out[t * out_stride + row] for row blocks [block_begin, block_end) and rows t in
  // [row_begin, row_end) of the activations. bias: (rows) or null. add: same shape and stride as
  // out, or null; may alias out. Any split into calls gives the same bits.
  void (*linear)(const MatrixView& w, int32_t block_begin, int32_t block_end,
                 const Activations& a, int32_t row_begin, int32_t row_end, const float* bias,
                 const float* add, float* out, size_t out_stride);
  // One row of the matrix as float32 (fp32 arithmetic in the checkpoint format's own order).
  void (*dequantize_row)(const MatrixView& w, int32_t row, float* out);
  // x: one row of cols floats -> codes (padded_cols), scales (padded_cols / group), sums
  // (padded_cols / kSumRun). Columns that are not there count as zeros.
  // scale = absmax / 127, code = round_to_nearest_even(x * (127 / absmax)); a group whose absmax is
  // below 1e-30 gets scale 0 and codes 0; a group with a NaN or infinity gets a NaN or infinite
  // scale, so that it reaches the logits instead of hiding. group: 16, 32, 64, 128 or 256.
  void (*quantize_row)(const float* x, int32_t cols, int32_t group, int8_t* codes, float* scales,
                       int32_t* sums);
};
const LinearKernels& linear_kernels(Isa isa);

}  // namespace farthing
