// Floats, linear 4-bit codes, and the table.
#include "kernels/linear/avx2_sums.h"
#include "kernels/linear/avx2_quantize.h"
#include "kernels/linear/packed_row.h"
#include "kernels/linear/tiles.h"

namespace farthing::FARTHING_ISA {

extern const LinearKernels linear_table;
const LinearKernels linear_table = {sweeps::linear, dequantize_row, quantize_row};

}  // namespace farthing::FARTHING_ISA
