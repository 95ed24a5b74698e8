#include "core/dispatch.h"
#include "kernels/limits/limits.h"

namespace farthing {

FARTHING_DISPATCH(LimitLoops, limit_table, limit_loops, avxvnni)

}  // namespace farthing
