#include "kernels/sampling/choose.h"

namespace farthing::FARTHING_ISA {

extern const SamplingKernels sampling_table;
const SamplingKernels sampling_table = kSampling;

}  // namespace farthing::FARTHING_ISA
