#include "kernels/elementwise/rows.h"

namespace farthing::FARTHING_ISA {

extern const ElementwiseKernels elementwise_table;
const ElementwiseKernels elementwise_table = kElementwise;

}  // namespace farthing::FARTHING_ISA
