// AVX-VNNI: the integer schemes; whatever else there is, as with AVX2.
#include "kernels/linear/bytes_avxvnni.h"
#include "kernels/linear/dot_rows.h"

namespace farthing {

namespace avx2 {
extern const LinearKernels linear_table;
}

namespace FARTHING_ISA {
namespace {

void linear(const MatrixView& w, int32_t block_begin, int32_t block_end, const Activations& a,
            int32_t row_begin, int32_t row_end, const float* bias, const float* add, float* out,
            size_t out_stride) {
  if (!dots::run_integers(w, block_begin, block_end, a, row_begin, row_end, bias, add, out,
                          out_stride))
    avx2::linear_table.linear(w, block_begin, block_end, a, row_begin, row_end, bias, add, out,
                              out_stride);
}

void dequantize_row(const MatrixView& w, int32_t row, float* out) {
  avx2::linear_table.dequantize_row(w, row, out);
}

void quantize_row(const float* x, int32_t cols, int32_t group, int8_t* codes, float* scales,
                  int32_t* sums) {
  avx2::linear_table.quantize_row(x, cols, group, codes, scales, sums);
}

}  // namespace

extern const LinearKernels linear_table;
const LinearKernels linear_table = {linear, dequantize_row, quantize_row};

}  // namespace FARTHING_ISA
}  // namespace farthing
