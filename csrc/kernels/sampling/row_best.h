// The greedy token of a row of logits that is seen piece by piece, never as a whole.
#pragma once

#include <cstdint>
#include <limits>

namespace farthing {

// Of the columns seen so far. Without a NaN: `value` is the highest, `token` the lowest id that has
// it, -1 while all are -infinity.
struct RowBest {
  float value = -std::numeric_limits<float>::infinity();
  int32_t token = -1;
  bool has_nan = false;
  bool has_finite = false;
};

// `next` is of higher columns than `best`.
void join(RowBest& best, const RowBest& next);

// What SamplingKernels::choose gives for the whole row, greedy, without mask and edits.
int32_t greedy_token(const RowBest& best);

}  // namespace farthing
