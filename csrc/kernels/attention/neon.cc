#include "kernels/attention/table.h"

namespace farthing::FARTHING_ISA {

extern const AttentionKernels attention_table;
const AttentionKernels attention_table = kAttention;

}  // namespace farthing::FARTHING_ISA
