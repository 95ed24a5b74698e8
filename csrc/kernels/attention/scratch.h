// Workspace of one attend call: its size and how it is divided.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/types.h"

namespace farthing {

// Query vectors (row of the batch, head of the group) that share one walk over the keys. An odd
// multiple of 16, so that columns of `queries` fall into different cache sets.
inline constexpr int kQueryVectors = 112;

// Floats, for a head_dim. All parts are multiples of 16, so each keeps a 64-byte alignment.
inline constexpr size_t attention_scratch_floats(size_t head_dim) {
  return kQueryVectors * (3 * head_dim + kBlockTokens + 5) + 2 * kBlockTokens * head_dim;
}
static_assert(kQueryVectors % 16 == 0);

}  // namespace farthing
