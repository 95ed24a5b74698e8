#include "kernels/experts/route.h"

namespace farthing::FARTHING_ISA {

extern const ExpertKernels expert_table;
const ExpertKernels expert_table = kExperts;

}  // namespace farthing::FARTHING_ISA
