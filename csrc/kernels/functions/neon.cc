#include "kernels/functions/arrays.h"

namespace farthing::FARTHING_ISA {

extern const FunctionKernels function_table;
const FunctionKernels function_table = kFunctions;

}  // namespace farthing::FARTHING_ISA
