// This instruction set's attention kernels.
#pragma once

#include "kernels/attention/attend.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/parts.h"
#include "kernels/attention/rope.h"
#include "kernels/attention/store.h"

namespace farthing::FARTHING_ISA {

inline constexpr AttentionKernels kAttention = {
    rope_table, rope_row, store_kv, attend, attend_spans, merge_parts};

}  // namespace farthing::FARTHING_ISA
