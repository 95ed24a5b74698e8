// The greedy token piece by piece, written once in Lanes.
#pragma once

#include "kernels/sampling/blocks.h"
#include "kernels/sampling/row_best.h"

namespace farthing::FARTHING_ISA {

inline void see_columns(const float* x, int32_t width, int32_t first_token, RowBest& best) {
  const Lanes none = broadcast(-infinity());
  Lanes high = none;
  Mask nan = first_lanes(0);
  const auto columns = [&](int32_t i) {
    return width - i >= 16 ? load(x + i)
                           : select(first_lanes(width - i), load_first(x + i, width - i), none);
  };
  for (int32_t i = 0; i < width; i += 16) {
    const Lanes v = columns(i);
    nan = nan | unordered(v, v);
    high = maximum(v, high);
  }
  if (mask_bits(nan) != 0) best.has_nan = true;
  const float top = largest(high);
  if (top > -infinity() && top < infinity()) best.has_finite = true;
  if (top == infinity() && !best.has_finite)
    for (int32_t i = 0; i < width; ++i) best.has_finite |= x[i] - x[i] == 0.0f;
  if (!(top > best.value)) return;  // what was seen before has lower ids
  for (int32_t i = 0; i < width; i += 16) {
    const uint32_t found = mask_bits(equal(columns(i), broadcast(top)));
    if (found == 0) continue;
    best.value = top;
    best.token = first_token + i + __builtin_ctz(found);
    return;
  }
}

}  // namespace farthing::FARTHING_ISA
