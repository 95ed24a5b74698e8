#include "core/dispatch.h"
#include "kernels/elementwise/elementwise.h"

namespace farthing {

FARTHING_DISPATCH(ElementwiseKernels, elementwise_table, elementwise_kernels, avx2)

}  // namespace farthing
