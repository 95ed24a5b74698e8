#include "kernels/elementwise/elementwise.h"

namespace farthing {

namespace scalar {
extern const ElementwiseKernels elementwise_table;
}
namespace avx2 {
extern const ElementwiseKernels elementwise_table;
}
namespace avx512 {
extern const ElementwiseKernels elementwise_table;
}

const ElementwiseKernels& elementwise_kernels(Isa isa) {
  switch (isa) {
    case Isa::avx2: return avx2::elementwise_table;
    case Isa::avx512: return avx512::elementwise_table;
    case Isa::scalar: break;
  }
  return scalar::elementwise_table;
}

}  // namespace farthing
