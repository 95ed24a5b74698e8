#include "kernels/functions/functions.h"

namespace farthing {

namespace scalar {
extern const FunctionKernels function_table;
}
namespace avx2 {
extern const FunctionKernels function_table;
}
namespace avx512 {
extern const FunctionKernels function_table;
}

const FunctionKernels& function_kernels(Isa isa) {
  switch (isa) {
    case Isa::avx2: return avx2::function_table;
    case Isa::avx512: return avx512::function_table;
    case Isa::scalar: break;
  }
  return scalar::function_table;
}

}  // namespace farthing
