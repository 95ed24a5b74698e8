#include "kernels/attention/attention.h"
#include "kernels/attention/scratch.h"

namespace farthing {

namespace scalar {
extern const AttentionKernels attention_table;
void inverse_frequencies(double theta, int32_t dim, double* out);
}
namespace avx2 {
extern const AttentionKernels attention_table;
}
namespace avx512 {
extern const AttentionKernels attention_table;
}

const AttentionKernels& attention_kernels(Isa isa) {
  switch (isa) {
    case Isa::avx2: return avx2::attention_table;
    case Isa::avx512: return avx512::attention_table;
    case Isa::scalar: break;
  }
  return scalar::attention_table;
}

size_t attention_scratch_bytes(const AttentionShape& shape) {
  return sizeof(float) * attention_scratch_floats(static_cast<size_t>(shape.head_dim));
}

void rope_inverse_frequencies(double theta, int32_t dim, double* out) {
  scalar::inverse_frequencies(theta, dim, out);
}

}  // namespace farthing
