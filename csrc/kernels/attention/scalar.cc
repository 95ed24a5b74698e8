#include "kernels/attention/table.h"

namespace farthing::FARTHING_ISA {

extern const AttentionKernels attention_table;
const AttentionKernels attention_table = kAttention;

void inverse_frequencies(double theta, int32_t dim, double* out);
void inverse_frequencies(double theta, int32_t dim, double* out) {
  rope_inverse_frequencies(theta, dim, out);
}

}  // namespace farthing::FARTHING_ISA
