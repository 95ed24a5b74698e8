// Floats, linear 4-bit codes, and the table.
#include "kernels/linear/avx512_sums.h"
#include "kernels/linear/avx512_quantize.h"
#include "kernels/linear/packed_row.h"
#include "kernels/linear/tiles.h"

namespace farthing::FARTHING_ISA {
namespace {

void linear(const MatrixView& w, int32_t block_begin, int32_t block_end, const Activations& a,
            int32_t row_begin, int32_t row_end, const float* bias, const float* add, float* out,
            size_t out_stride) {
  using namespace sweeps;
  if (row_end <= row_begin) return;
  const Call c{w,       block_begin, block_end, a,   row_begin,
               row_end, bias,        add,       out, out_stride};
  (void)(run_one_of<Ops, Scheme::f32, Scheme::f16, Scheme::bf16, Scheme::q4_0, Scheme::w4g64,
                    Scheme::w4g128, Scheme::w4row, Scheme::q4_1, Scheme::w4g64m,
                    Scheme::w4g128m>(c) ||
         linear_codebook(c) || linear_five_bits(c) || linear_six_bits(c) ||
         linear_eight_bits(c) || linear_two_level(c));
}

}  // namespace

extern const LinearKernels linear_table;
const LinearKernels linear_table = {linear, dequantize_row, quantize_row};

}  // namespace farthing::FARTHING_ISA
