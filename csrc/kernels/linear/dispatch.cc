#include "kernels/linear/linear.h"

namespace farthing {

namespace scalar {
extern const LinearKernels linear_table;
}
namespace avx2 {
extern const LinearKernels linear_table;
}
namespace avx512 {
extern const LinearKernels linear_table;
}

const LinearKernels& linear_kernels(Isa isa) {
  switch (isa) {
    case Isa::scalar: return scalar::linear_table;
    case Isa::avx2: return avx2::linear_table;
    case Isa::avx512: return avx512::linear_table;
  }
  return scalar::linear_table;
}

}  // namespace farthing
