// top-k, top-p, min-p and typical-p over the candidates of a row.
#pragma once

#include "kernels/sampling/weights.h"

namespace farthing::FARTHING_ISA {

// Values that keep(values) says, of blocks for whose maxima visit(maxima) says so; their number.
template <class Visit, class Keep>
FARTHING_INLINE int32_t gather(const Blocks& blocks, Visit visit, Keep keep_lanes, Candidate* out) {
  const Lanes none = broadcast(-infinity());
  int32_t n = 0;
  blocks.each(visit, [&](Lanes value, const float* x, int32_t first) {
    uint32_t found = mask_bits(keep_lanes(value)) & mask_bits(less(none, value));
    for (; found != 0; found &= found - 1) {
      const int32_t lane = __builtin_ctz(found);
      out[n].value = x[lane];
      out[n++].token = first + lane;
    }
  });
  return n;
}

inline int32_t gather_all(const Blocks& blocks, Candidate* out) {
  const auto any = [](Lanes value) { return equal(value, value); };
  return gather(blocks, any, any, out);
}

// Values at least as high as the k-th highest block maximum: at least k of them, all if there are no
// more than k blocks.
inline int32_t gather_best_blocks(const Blocks& blocks, int32_t k, const SamplingScratch& scratch) {
  if (k >= blocks.count()) return gather_all(blocks, scratch.candidates);
  const float least = blocks.reached_by(k);
  const auto high = [least](Lanes value) { return not_less(value, broadcast(least)); };
  return gather(blocks, high, high, scratch.candidates);
}

// The first k of the order, fewer if there are not so many.
inline int32_t gather_first(const Blocks& blocks, int32_t k, const SamplingScratch& scratch) {
  const int32_t n = gather_best_blocks(blocks, k, scratch);
  first_to_front(scratch.candidates, n, k);
  return n < k ? n : k;
}

inline int32_t gather_by_ratio(const Blocks& blocks, float min_p, const Heights& heights,
                               Candidate* out) {
  const auto heavy = [&](Lanes value) {
    return not_less(exp_of_nonpositive(heights(value)), broadcast(min_p));
  };
  const int32_t n = gather(blocks, heavy, heavy, out);
  weigh(out, n, heights);
  return n;
}

// Candidates that a share of the weight needs, where they may be many: a histogram of the weights
// tells to a 32nd of the key, a function of the height, where the order by it ends.
struct Boundary {
  static constexpr int32_t kBuckets = 1024;
  int32_t bucket = 0;    // the last that is needed
  uint64_t needed = 0;   // of its weight

  template <class Key>
  static FARTHING_INLINE IntLanes bucket_of(Key key, Lanes height) {
    const Lanes scaled = key(height) * broadcast(-32.0f);
    return round_to_int(negative(maximum(scaled, broadcast(1.0f - kBuckets))));
  }

  template <class Key>
  Boundary(const Blocks& blocks, const Heights& heights, Key key, uint64_t total_needed)
      : needed(total_needed) {
    uint64_t weights[kBuckets] = {};
    each_weighty(blocks, heights, [&](Lanes height, Lanes ratio) {
      IntLanes whole, part;
      fixed_point(ratio, whole, part);
      uint32_t high[16], low[16], at[16];
      store_ints(high, whole);
      store_ints(low, part);
      store_ints(at, bucket_of(key, height));
      for (int32_t i = 0; i < 16; ++i) weights[at[i]] += joined(high[i], low[i]);
    });
    for (; bucket < kBuckets - 1 && weights[bucket] < needed; ++bucket) needed -= weights[bucket];
  }
};

inline int32_t keep_weight_of_many(const Blocks& blocks, const Heights& heights, uint64_t needed,
                                   Candidate* out) {
  const auto key = [](Lanes height) { return negative(height); };
  const Boundary end(blocks, heights, key, needed);
  const Lanes last = broadcast(static_cast<float>(end.bucket));
  const auto bucket = [&](Lanes value) { return to_float(Boundary::bucket_of(key, heights(value))); };
  const auto before = [&](Lanes value) { return less(bucket(value), last); };
  const int32_t sure = gather(blocks, before, before, out);
  const int32_t rest = gather(
      blocks, [&](Lanes value) { return not_less(last, bucket(value)); },
      [&](Lanes value) { return equal(bucket(value), last); }, out + sure);
  weigh(out, sure + rest, heights);
  return sure + lightest_by_value(out + sure, rest, end.needed);
}

// Candidates of the row that top_p keeps. As a rule they are few and stand in few blocks.
inline int32_t keep_weight(const Blocks& blocks, double share, const Heights& heights,
                           const SamplingScratch& scratch) {
  FixedSum sum;
  each_weighty(blocks, heights, [&sum](Lanes, Lanes ratio) { sum.add(ratio); });
  const uint64_t needed = weight_needed(share, sum.total());
  for (const int32_t k : {64, 512}) {
    const int32_t n = gather_best_blocks(blocks, k, scratch);
    weigh(scratch.candidates, n, heights);
    if (total_weight(scratch.candidates, n) >= needed)
      return lightest_by_value(scratch.candidates, n, needed);
  }
  return keep_weight_of_many(blocks, heights, needed, scratch.candidates);
}

inline int32_t keep_ratio(Candidate* candidates, int32_t n, float min_p) {
  int32_t kept = 0;
  for (int32_t i = 0; i < n; ++i)
    if (candidates[i].ratio >= min_p) candidates[kept++] = candidates[i];
  return kept;
}

inline void measure_deviations(Candidate* candidates, int32_t n, float mean) {
  for (int32_t i = 0; i < n; ++i)
    candidates[i].deviation = __builtin_fabsf(candidates[i].height + mean);
}

inline int32_t keep_typical(Candidate* candidates, int32_t n, double share) {
  FixedSum depths;
  for (int32_t i = 0; i < n; i += 16) {
    float height[16], ratio[16];
    for (int32_t j = 0; j < 16; ++j) {
      const bool present = i + j < n;
      height[j] = present ? candidates[i + j].height : 0.0f;
      ratio[j] = present ? candidates[i + j].ratio : 0.0f;
    }
    depths.add(depth_share(load(height), load(ratio)));
  }
  const uint64_t total = total_weight(candidates, n);
  measure_deviations(candidates, n, mean_depth(depths.total(), total));
  return lightest_by_deviation(candidates, n, weight_needed(share, total));
}

// As keep_typical, of all values of the row.
inline int32_t keep_typical_of_row(const Blocks& blocks, double share, const Heights& heights,
                                   Candidate* out) {
  FixedSum weights, depths;
  each_weighty(blocks, heights, [&](Lanes height, Lanes ratio) {
    weights.add(ratio);
    depths.add(depth_share(height, ratio));
  });
  const uint64_t total = weights.total();
  const float mean = mean_depth(depths.total(), total);
  const auto key = [mean](Lanes height) { return deviation(height, mean); };
  const Boundary end(blocks, heights, key, weight_needed(share, total));
  const Lanes last = broadcast(static_cast<float>(end.bucket));
  const auto bucket = [&](Lanes value) { return to_float(Boundary::bucket_of(key, heights(value))); };
  const auto any = [](Lanes value) { return equal(value, value); };
  const int32_t sure =
      gather(blocks, any, [&](Lanes value) { return less(bucket(value), last); }, out);
  const int32_t rest =
      gather(blocks, any, [&](Lanes value) { return equal(bucket(value), last); }, out + sure);
  weigh(out, sure + rest, heights);
  measure_deviations(out + sure, rest, mean);
  return sure + lightest_by_deviation(out + sure, rest, end.needed);
}

FARTHING_INLINE bool has_top_k(const Filters& f, int32_t width) {
  return f.top_k > 0 && f.top_k < width;
}

FARTHING_INLINE bool any_filter(const Filters& f, int32_t width) {
  return has_top_k(f, width) || f.top_p < 1.0 || f.min_p > 0.0f || f.typical_p < 1.0;
}

// What the filters leave; their number, in scratch.candidates. The top is finite.
inline int32_t filtered(const Blocks& blocks, int32_t width, const Filters& f,
                        const SamplingScratch& scratch) {
  const Heights heights = {blocks.top(), f.temperature};
  Candidate* candidates = scratch.candidates;
  int32_t n;
  if (has_top_k(f, width)) {
    n = gather_first(blocks, f.top_k, scratch);
    weigh(candidates, n, heights);
    if (f.top_p < 1.0)
      n = lightest_by_value(candidates, n, weight_needed(f.top_p, total_weight(candidates, n)));
  } else if (f.top_p < 1.0) {
    n = keep_weight(blocks, f.top_p, heights, scratch);
  } else if (f.min_p > 0.0f) {
    n = gather_by_ratio(blocks, f.min_p, heights, candidates);
  } else if (f.typical_p < 1.0) {
    return keep_typical_of_row(blocks, f.typical_p, heights, candidates);
  } else {
    n = gather_all(blocks, candidates);
    weigh(candidates, n, heights);
  }
  if (f.min_p > 0.0f) n = keep_ratio(candidates, n, f.min_p);
  if (f.typical_p < 1.0) n = keep_typical(candidates, n, f.typical_p);
  return n;
}

}  // namespace farthing::FARTHING_ISA
