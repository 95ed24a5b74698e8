#include "core/dispatch.h"
#include "kernels/experts/experts.h"

namespace farthing {

FARTHING_DISPATCH(ExpertKernels, expert_table, expert_kernels, avx2)

}  // namespace farthing
