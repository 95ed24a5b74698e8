// Mixture of experts, the parts that are not matrix products: which experts a row goes to and with
// what weights, and the sum of what they give. Contract shared by every instruction set.
#pragma once

#include "core/isa.h"
#include "core/types.h"

namespace farthing {

struct ExpertKernels {
  // The top_k largest logits, the lower id among equals: chosen[0..top_k) in ascending id. Weights,
  // with e_i = exp(logit_i - largest): e of a chosen expert divided by
  //   normalize      the sum of the chosen e, added in ascending id
  //   otherwise      the sum of all e: lane i (of 16) takes experts i, i + 16, ... ascending; lanes
  //                  join by the fixed tree (8 apart, 4, 2, 1)
  // Where a logit is NaN or the largest is infinite no expert is better than another: the first
  // top_k with weights NaN, so that the row becomes NaN and no other does. 1 <= top_k <= experts.
  void (*route_row)(const float* logits, int32_t experts, int32_t top_k, bool normalize,
                    int32_t* chosen, float* weights);
  // out = (acc = 0; for i ascending: acc = fma(weights[i], y[rows[i]], acc)) [+ add]; the rows of y
  // are `width` apart. add may be null; `out` may be add.
  void (*combine_row)(const float* y, const int32_t* rows, const float* weights, int32_t count,
                      int32_t width, const float* add, float* out);
};
const ExpertKernels& expert_kernels(Isa isa);

}  // namespace farthing
