// Linear ops over packed weights: contract shared by every instruction set.
//
// Numerics, per output (docs/architecture.md, "Exact means bit for bit"):
//   float schemes    acc = 0; for k ascending: acc = fma(w[k], x[k], acc)
//   one-level        for each 32-group ascending: p = w_scale * a_scale (one rounding),
//                    acc = fma(p, float(sum of (code - zero) * a over the group, int32), acc),
//                    then, with a minimum (q4_1, q5_1):
//                    acc = fma(w_min * a_scale, float(asum), acc)
//   two-level        for each 256-super-block ascending: p = d * a_scale, with
//                    isum = sum over sub-blocks of sub_scale * (sum of (code - zero) * a), int32:
//                    acc = fma(p, float(isum), acc), then, with minimums (q4_k, q5_k):
//                    acc = fma(-(dmin * a_scale), float(sum of sub_min * asum), acc)
//   epilogue         y = acc; if bias: y = y + bias[row]; if add: y = y + add[t][row]
#pragma once

#include "core/isa.h"
#include "core/types.h"

namespace farthing {

// Columns that share one entry of Activations::sums.
inline constexpr int kSumRun = 16;

struct SchemeInfo {
  Scheme scheme;
  const char* name;       // GGUF spelling in lower case: "q4_0", "f16", ...
  int32_t block_cols;     // columns in one checkpoint block (1 for float schemes)
  int32_t block_bytes;    // bytes of one checkpoint block
  int32_t activation_group;  // 0: float activations
};
const SchemeInfo& scheme_info(Scheme scheme);

size_t row_block_bytes(Scheme scheme, int32_t cols);

// Packs `count` rows of checkpoint bytes (row-major blocks) into rows first_row.. of a zeroed
// packed matrix. Codes, scales and minimums are kept as they are.
void pack_rows(Scheme scheme, int32_t rows, int32_t cols, uint8_t* packed, int32_t first_row,
               int32_t count, const uint8_t* source);

// Byte at which the first NaN or infinity among a scheme's weights, or its scales and minimums,
// starts in checkpoint bytes; `bytes` if all are finite. `bytes` is a multiple of the block.
size_t first_nonfinite(Scheme scheme, const uint8_t* source, size_t bytes);

struct LinearKernels {
  // out[t * out_stride + row] for row blocks [block_begin, block_end) and rows t in
  // [row_begin, row_end) of the activations. bias: (rows) or null. add: same shape and stride as
  // out, or null; may alias out. Any split into calls gives the same bits.
  void (*linear)(const MatrixView& w, int32_t block_begin, int32_t block_end,
                 const Activations& a, int32_t row_begin, int32_t row_end, const float* bias,
                 const float* add, float* out, size_t out_stride);
  // One row of the matrix as float32 (fp32 arithmetic in the checkpoint format's own order).
  void (*dequantize_row)(const MatrixView& w, int32_t row, float* out);
  // x: one row of cols floats -> codes, scales (cols/group), sums (ceil(cols/kSumRun)).
  // scale = absmax / 127, code = round_to_nearest_even(x * (127 / absmax)); a group whose absmax is
  // below 1e-30 gets scale 0 and codes 0; a group with a NaN or infinity gets a NaN or infinite
  // scale, so that it reaches the logits instead of hiding. cols is a multiple of group.
  void (*quantize_row)(const float* x, int32_t cols, int32_t group, int8_t* codes, float* scales,
                       int32_t* sums);
};
const LinearKernels& linear_kernels(Isa isa);

}  // namespace farthing
