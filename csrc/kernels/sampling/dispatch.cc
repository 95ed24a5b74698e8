#include "core/dispatch.h"
#include "kernels/sampling/sampling.h"

namespace farthing {

FARTHING_DISPATCH(SamplingKernels, sampling_table, sampling_kernels, avx2)

}  // namespace farthing
