// top-k, top-p, min-p and typical-p over the candidates of a row.
#pragma once

#include "kernels/sampling/blocks.h"

namespace farthing::FARTHING_ISA {

inline constexpr float kWeightRoot = 0x1p20f;  // weights are multiples of 2^-40

// rint(2^40 x) of 0 <= x <= 1 as high * 2^20 + low: both steps are exact but the last rounding.
FARTHING_INLINE void fixed_point(Lanes x, IntLanes& high, IntLanes& low) {
  const Lanes scaled = x * broadcast(kWeightRoot);
  high = round_to_int(scaled);
  low = round_to_int((scaled - to_float(high)) * broadcast(kWeightRoot));
}

FARTHING_INLINE uint64_t joined(uint32_t high, uint32_t low) {
  return static_cast<uint64_t>((static_cast<int64_t>(high) << 20) + static_cast<int32_t>(low));
}

struct Heights {
  float top;
  float temperature;
  FARTHING_INLINE Lanes operator()(Lanes value) const {
    return (value - broadcast(top)) / broadcast(temperature);
  }
};

// Weights below this height are 0.
inline constexpr float kWeightless = -29.0f;

// Sum of the weights of all values.
inline uint64_t weight_of_row(const Blocks& blocks, const Heights& heights) {
  uint64_t total = 0;
  IntLanes high = broadcast_int(0), low = broadcast_int(0);
  int32_t pending = 0;
  const auto flush = [&] {
    uint32_t h[16], l[16];
    store_ints(h, high);
    store_ints(l, low);
    for (int32_t i = 0; i < 16; ++i) total += joined(h[i], l[i]);
    high = low = broadcast_int(0);
    pending = 0;
  };
  for (int32_t group = 0; group < blocks.count(); group += 16) {
    const Lanes height = heights(load(blocks.maxima() + group));
    uint32_t heavy = mask_bits(not_less(height, broadcast(kWeightless)));
    for (; heavy != 0; heavy &= heavy - 1) {
      const int32_t block = group + __builtin_ctz(heavy);
      if (block >= blocks.count()) break;
      float x[kBlockColumns];
      blocks.values(block, x);
      for (int32_t i = 0; i < kBlockColumns; i += 16) {
        IntLanes h, l;
        fixed_point(exp_of_nonpositive(heights(load(x + i))), h, l);
        high = high + h;
        low = low + l;
      }
      // A lane's high grows by at most 2^20 and its low by 2^19 each time, and both have 31 bits.
      if ((pending += 4) >= 1024) flush();
    }
  }
  flush();
  return total;
}

// All values of at least `least` in blocks whose maximum is at least `least_maximum`.
inline int32_t gather(const Blocks& blocks, float least, float least_maximum, Candidate* out) {
  const Lanes none = broadcast(-infinity());
  int32_t n = 0;
  for (int32_t group = 0; group < blocks.count(); group += 16) {
    const Lanes best = load(blocks.maxima() + group);
    uint32_t wanted = mask_bits(not_less(best, broadcast(least_maximum))) &
                      mask_bits(less(none, best));
    for (; wanted != 0; wanted &= wanted - 1) {
      const int32_t block = group + __builtin_ctz(wanted);
      float x[kBlockColumns];
      blocks.values(block, x);
      for (int32_t i = 0; i < kBlockColumns; i += 16) {
        const Lanes value = load(x + i);
        uint32_t found =
            mask_bits(not_less(value, broadcast(least))) & mask_bits(less(none, value));
        for (; found != 0; found &= found - 1) {
          const int32_t column = i + __builtin_ctz(found);
          out[n].value = x[column];
          out[n++].token = block * kBlockColumns + column;
        }
      }
    }
  }
  return n;
}

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

// Values at least as high as the k-th highest block maximum: at least k of them, all if there are no
// more than k blocks.
inline int32_t gather_best_blocks(const Blocks& blocks, int32_t k, const SamplingScratch& scratch) {
  float least = -infinity();
  if (k < blocks.count()) {
    for (int32_t b = 0; b < blocks.count(); b += 16)
      store(scratch.ranked + b, load(scratch.maxima + b));
    least = kth_largest(scratch.ranked, blocks.count(), k);
  }
  return gather(blocks, least, least, scratch.candidates);
}

// The first k of the order, fewer if there are not so many.
inline int32_t gather_first(const Blocks& blocks, int32_t k, const SamplingScratch& scratch) {
  const int32_t n = gather_best_blocks(blocks, k, scratch);
  first_to_front(scratch.candidates, n, k);
  return n < k ? n : k;
}

// Candidates of the row that top_p keeps. Most of the weight lies in few blocks as a rule, so ever
// more of the best are looked into until they suffice.
inline int32_t keep_weight(const Blocks& blocks, double share, const Heights& heights,
                           const SamplingScratch& scratch) {
  const uint64_t needed = weight_needed(share, weight_of_row(blocks, heights));
  for (int32_t k = 64;; k *= 8) {
    const int32_t n = gather_best_blocks(blocks, k, scratch);
    weigh(scratch.candidates, n, heights);
    if (k >= blocks.count() || total_weight(scratch.candidates, n) >= needed)
      return lightest_by_value(scratch.candidates, n, needed);
  }
}

// Candidates of blocks with a value that min_p keeps; not only those.
inline int32_t gather_by_ratio(const Blocks& blocks, float min_p, const Heights& heights,
                               const SamplingScratch& scratch) {
  float least = infinity();
  for (int32_t group = 0; group < blocks.count(); group += 16) {
    float maxima[16];
    const Lanes best = load(blocks.maxima() + group);
    store(maxima, best);
    uint32_t kept = mask_bits(not_less(exp_of_nonpositive(heights(best)), broadcast(min_p)));
    for (; kept != 0; kept &= kept - 1) {
      const float maximum_of_block = maxima[__builtin_ctz(kept)];
      if (maximum_of_block < least) least = maximum_of_block;
    }
  }
  const int32_t n = gather(blocks, -infinity(), least, scratch.candidates);
  weigh(scratch.candidates, n, heights);
  return n;
}

inline int32_t keep_ratio(Candidate* candidates, int32_t n, float min_p) {
  int32_t kept = 0;
  for (int32_t i = 0; i < n; ++i)
    if (candidates[i].ratio >= min_p) candidates[kept++] = candidates[i];
  return kept;
}

inline int32_t keep_typical(Candidate* candidates, int32_t n, double share) {
  uint64_t depths = 0;  // sum of rint(2^40 * ratio * -height)
  for (int32_t i = 0; i < n; i += 16) {
    const int32_t count = n - i < 16 ? n - i : 16;
    float depth[16], ratio[16];
    for (int32_t j = 0; j < 16; ++j) {
      const bool present = j < count;
      // Beyond 128 the ratio is 0; infinity times that would be NaN.
      const float below = present ? -candidates[i + j].height : 0.0f;
      depth[j] = below < 128.0f ? below : 128.0f;
      ratio[j] = present ? candidates[i + j].ratio : 0.0f;
    }
    IntLanes high, low;
    fixed_point(load(ratio) * load(depth), high, low);
    uint32_t h[16], l[16];
    store_ints(h, high);
    store_ints(l, low);
    for (int32_t j = 0; j < count; ++j) depths += joined(h[j], l[j]);
  }
  const uint64_t total = total_weight(candidates, n);
  const float mean = static_cast<float>(static_cast<double>(depths) / static_cast<double>(total));
  for (int32_t i = 0; i < n; ++i)
    candidates[i].deviation = __builtin_fabsf(candidates[i].height + mean);
  return lightest_by_deviation(candidates, n, weight_needed(share, total));
}

// What the filters leave; their number, in scratch.candidates. The top is finite.
inline int32_t filtered(const Blocks& blocks, int32_t width, const Filters& f,
                        const SamplingScratch& scratch) {
  const Heights heights = {blocks.top(), f.temperature};
  Candidate* candidates = scratch.candidates;
  int32_t n;
  if (f.top_k > 0 && f.top_k < width) {
    n = gather_first(blocks, f.top_k, scratch);
    weigh(candidates, n, heights);
    if (f.top_p < 1.0)
      n = lightest_by_value(candidates, n, weight_needed(f.top_p, total_weight(candidates, n)));
  } else if (f.top_p < 1.0) {
    n = keep_weight(blocks, f.top_p, heights, scratch);
  } else if (f.min_p > 0.0f) {
    n = gather_by_ratio(blocks, f.min_p, heights, scratch);
  } else {
    n = gather(blocks, -infinity(), -infinity(), candidates);
    weigh(candidates, n, heights);
  }
  if (f.min_p > 0.0f) n = keep_ratio(candidates, n, f.min_p);
  if (f.typical_p < 1.0) n = keep_typical(candidates, n, f.typical_p);
  return n;
}

inline bool any_filter(const Filters& f, int32_t width) {
  return (f.top_k > 0 && f.top_k < width) || f.top_p < 1.0 || f.min_p > 0.0f || f.typical_p < 1.0;
}

}  // namespace farthing::FARTHING_ISA
