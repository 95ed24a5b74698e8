#include "core/dispatch.h"
#include "kernels/linear/linear.h"

namespace farthing {

FARTHING_DISPATCH(LinearKernels, linear_table, linear_kernels, avxvnni)

}  // namespace farthing
