#include "kernels/experts/experts.h"

namespace farthing {

namespace scalar {
extern const ExpertKernels expert_table;
}
namespace avx2 {
extern const ExpertKernels expert_table;
}
namespace avx512 {
extern const ExpertKernels expert_table;
}

const ExpertKernels& expert_kernels(Isa isa) {
  switch (isa) {
    case Isa::avx2: return avx2::expert_table;
    case Isa::avx512: return avx512::expert_table;
    case Isa::scalar: break;
  }
  return scalar::expert_table;
}

}  // namespace farthing
