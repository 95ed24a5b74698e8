// Heights and weights of values: probabilities as far as sampling needs them.
#pragma once

#include "kernels/sampling/blocks.h"

namespace farthing::FARTHING_ISA {

struct Heights {
  float top;
  float temperature;
  FARTHING_INLINE Lanes operator()(Lanes value) const {
    return (value - broadcast(top)) / broadcast(temperature);
  }
};

// rint(2^40 x) of 0 <= x <= 1 as high * 2^20 + low: all but the last rounding is exact.
FARTHING_INLINE void fixed_point(Lanes x, IntLanes& high, IntLanes& low) {
  const Lanes root = broadcast(0x1p20f);
  const Lanes scaled = x * root;
  high = round_to_int(scaled);
  low = round_to_int((scaled - to_float(high)) * root);
}

FARTHING_INLINE uint64_t joined(uint32_t high, uint32_t low) {
  return static_cast<uint64_t>((static_cast<int64_t>(high) << 20) + static_cast<int32_t>(low));
}

// Adds up fixed-point numbers of 0 <= x <= 1.
class FixedSum {
 public:
  FARTHING_INLINE void add(Lanes x) {
    IntLanes high, low;
    fixed_point(x, high, low);
    high_ = high_ + high;
    low_ = low_ + low;
    // A lane's high grows by at most 2^20 and its low by 2^19 each time, and both have 31 bits.
    if (++pending_ == 1024) flush();
  }
  uint64_t total() {
    flush();
    return total_;
  }

 private:
  void flush() {
    uint32_t high[16], low[16];
    store_ints(high, high_);
    store_ints(low, low_);
    for (int32_t i = 0; i < 16; ++i) total_ += joined(high[i], low[i]);
    high_ = low_ = broadcast_int(0);
    pending_ = 0;
  }

  IntLanes high_ = broadcast_int(0), low_ = broadcast_int(0);
  int32_t pending_ = 0;
  uint64_t total_ = 0;
};

// ratio * -height: beyond 128 the ratio is 0, and infinity times that would be NaN.
FARTHING_INLINE Lanes depth_share(Lanes height, Lanes ratio) {
  return ratio * negative(maximum(height, broadcast(-128.0f)));
}

FARTHING_INLINE float mean_depth(uint64_t depths, uint64_t weights) {
  return static_cast<float>(static_cast<double>(depths) / static_cast<double>(weights));
}

FARTHING_INLINE Lanes deviation(Lanes height, float mean) {
  return as_float(as_int(height + broadcast(mean)) & broadcast_int(0x7fffffff));
}

// Calls body(heights, ratios) for every sixteen values of the blocks that weigh anything: below a
// height of -29 a weight is 0.
template <class Body>
FARTHING_INLINE void each_weighty(const Blocks& blocks, const Heights& heights, Body body) {
  blocks.each([&](Lanes best) { return not_less(heights(best), broadcast(-29.0f)); },
              [&](Lanes value, const float*, int32_t) {
                const Lanes height = heights(value);
                body(height, exp_of_nonpositive(height));
              });
}

// Fills height, ratio and weight of candidates from their values.
inline void weigh(Candidate* candidates, int32_t n, const Heights& heights) {
  for (int32_t i = 0; i < n; i += 16) {
    const int32_t count = n - i < 16 ? n - i : 16;
    float value[16], height[16], ratio[16];
    uint32_t high[16], low[16];
    for (int32_t j = 0; j < 16; ++j) value[j] = candidates[i + (j < count ? j : 0)].value;
    const Lanes h = heights(load(value));
    const Lanes r = exp_of_nonpositive(h);
    IntLanes whole, part;
    fixed_point(r, whole, part);
    store(height, h);
    store(ratio, r);
    store_ints(high, whole);
    store_ints(low, part);
    for (int32_t j = 0; j < count; ++j) {
      candidates[i + j].height = height[j];
      candidates[i + j].ratio = ratio[j];
      candidates[i + j].weight = joined(high[j], low[j]);
    }
  }
}

}  // namespace farthing::FARTHING_ISA
