#include "core/dispatch.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/scratch.h"

namespace farthing {

FARTHING_DISPATCH(AttentionKernels, attention_table, attention_kernels, avx2)

namespace scalar {
void inverse_frequencies(double theta, int32_t dim, double* out);
}

size_t attention_scratch_bytes(const AttentionShape& shape) {
  return sizeof(float) * attention_scratch_floats(static_cast<size_t>(shape.head_dim));
}

void rope_inverse_frequencies(double theta, int32_t dim, double* out) {
  scalar::inverse_frequencies(theta, dim, out);
}

}  // namespace farthing
