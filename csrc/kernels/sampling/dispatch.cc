#include "kernels/sampling/sampling.h"

namespace farthing {

namespace scalar {
extern const SamplingKernels sampling_table;
}
namespace avx2 {
extern const SamplingKernels sampling_table;
}
namespace avx512 {
extern const SamplingKernels sampling_table;
}

const SamplingKernels& sampling_kernels(Isa isa) {
  switch (isa) {
    case Isa::avx2: return avx2::sampling_table;
    case Isa::avx512: return avx512::sampling_table;
    case Isa::scalar: break;
  }
  return scalar::sampling_table;
}

}  // namespace farthing
