#include "core/dispatch.h"
#include "kernels/functions/functions.h"

namespace farthing {

FARTHING_DISPATCH(FunctionKernels, function_table, function_kernels, avx2)

}  // namespace farthing
