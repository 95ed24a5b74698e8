// Selecting among few numbers, the same on every instruction set because it is compiled once.
#pragma once

#include "core/inline.h"
#include "kernels/sampling/sampling.h"

namespace farthing {

// Columns that share a maximum. A block has a column as high as its maximum, so the k-th largest of
// the maxima bounds the k-th largest of the columns from below, and only blocks that reach it need
// to be looked into.
inline constexpr int32_t kBlockColumns = 64;
FARTHING_INLINE constexpr int32_t num_blocks(int32_t width) {
  return (width + kBlockColumns - 1) / kBlockColumns;
}

// The k-th largest of n values, 1 <= k <= n. Reorders them.
float kth_largest(float* values, int32_t n, int32_t k);

// Puts the first k of the order (value descending, token ascending) in front, themselves unordered.
void first_to_front(Candidate* candidates, int32_t n, int32_t k);

// Sorts by (value descending, token ascending).
void sort_by_value(Candidate* candidates, int32_t n);

uint64_t total_weight(const Candidate* candidates, int32_t n);

// ceil(share * total), between 1 and total.
uint64_t weight_needed(double share, uint64_t total);

// Puts the shortest beginning of the order whose weights reach `needed` in front, itself unordered;
// its length, n if all together do not. By value: (value descending, token ascending).
// By deviation: (deviation ascending, value descending, token ascending).
int32_t lightest_by_value(Candidate* candidates, int32_t n, uint64_t needed);
int32_t lightest_by_deviation(Candidate* candidates, int32_t n, uint64_t needed);

}  // namespace farthing
