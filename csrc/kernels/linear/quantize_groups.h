// A row of activations, group by group; what lies beyond its last column counts as zeros.
#pragma once

#include <cstring>

#include "kernels/linear/linear.h"

namespace farthing::FARTHING_ISA {

inline constexpr int kMostGroup = 256;

// one(x, group columns, codes, scale, sums) rounds a whole group.
template <class Group>
inline void quantize_groups(Group one, const float* x, int32_t cols, int32_t group, int8_t* codes,
                            float* scales, int32_t* sums) {
  int32_t first = 0;
  for (; cols - first >= group; first += group)
    one(x + first, group, codes + first, scales + first / group, sums + first / kSumRun);
  for (; first < padded_cols(cols, group); first += group) {
    float rest[kMostGroup] = {};
    if (first < cols) std::memcpy(rest, x + first, sizeof(float) * (cols - first));
    one(rest, group, codes + first, scales + first / group, sums + first / kSumRun);
  }
}

}  // namespace farthing::FARTHING_ISA
