#include "core/dispatch.h"
#include "quantization/rounding.h"

namespace farthing {

FARTHING_DISPATCH(RoundingKernels, rounding_table, rounding_kernels, avx2)

}  // namespace farthing
