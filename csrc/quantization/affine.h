// Schemes with two numbers a group: value = scale * code + minimum.
#pragma once

#include "quantization/batches.h"
#include "quantization/half.h"
#include "quantization/weights.h"

namespace farthing::FARTHING_ISA {

// Two fp16 numbers.
struct Pair {
  uint16_t scale, minimum;

  FARTHING_INLINE bool fits() const {
    return (scale & 0x7fff) < kHalfInfinity && (minimum & 0x7fff) < kHalfInfinity;
  }
  FARTHING_INLINE bool operator==(const Pair& other) const {
    return scale == other.scale && minimum == other.minimum;
  }
};

// The code of a value is the nearest to (value - low - shift) / scale.
FARTHING_INLINE Lanes to_code(Lanes t, float top) { return nearest_whole(t, 0.0f, top); }

// The best pairs for a batch, each lane's own.
template <class Weight>
class LineSearch {
 public:
  // `lows`, `highs`: of the values. `pairs`: those that span them, replaced by the best; where a
  // scale is 0 nothing is to be found.
  LineSearch(int bits, const Batch& batch, const float (&lows)[kGroups],
             const float (&highs)[kGroups], Pair (&pairs)[kGroups])
      : bits_(bits),
        top_(static_cast<float>((1 << bits) - 1)),
        batch_(batch),
        lows_(lows),
        highs_(highs),
        pairs_(pairs) {}

  void run() {
    batch_.each_block([&](const LaneBlock& block, int rows) {
      const Lanes low = load(lows_);
      Doubles sums[2];
      block.sum(sums, [&](Lanes x, Lanes(&to)[2]) {
        to[0] = to[0] + Weight::times(x, broadcast(1.0f));
        to[1] = to[1] + Weight::times(x, x - low);
      });
      batch_.add(sums[0], rows, counts_);
      batch_.add(sums[1], rows, heights_);
    });
    try_all();
    settle();
  }

 private:
  // Scales tried, as shares of the one that spans the range, and for each the places of what it
  // does not span: all of it above, half of it, none.
  static constexpr int kScales = 17, kPlaces = 3;
  static constexpr float kWidest = 1.1f;
  static constexpr int kTurns = 8;  // of codes from the line and the line from the codes
  static constexpr size_t kLongGroup = 128;

  // The narrowest share in a group, in a long one, and of a whole matrix, whose outliers may lie
  // anywhere, what each share is of the one before: many codes are better spent on all of the range.
  struct Narrowing {
    float narrowest, narrowest_long, ratio;
  };
  static Narrowing narrowing(int bits) {
    if (bits <= 5) return {0.6f, 0.2f, 0.84f};
    if (bits == 6) return {0.75f, 0.4f, 0.9f};
    return bits == 7 ? Narrowing{0.85f, 0.6f, 0.95f} : Narrowing{0.9f, 0.75f, 0.97f};
  }

  // Weighted sums over the values that depend on their codes: of codes, their squares, and codes
  // times how far values lie above the lowest. Sums of ones and of heights do not.
  struct Sums {
    Doubles codes, squares, products;
  };
  struct Lines {
    Doubles scales, minimums;
  };

  FARTHING_INLINE static void add_to(Lanes (&sums)[3], Lanes x, Lanes height, Lanes code) {
    const Lanes weighted = Weight::times(x, code);
    sums[0] = sums[0] + weighted;
    sums[1] = sums[1] + weighted * code;
    sums[2] = sums[2] + weighted * height;
  }

  // Lines by least squares for the lanes of a vector. Where all codes are one, spread is 0 and no
  // line the best.
  FARTHING_INLINE void fit(const Sums& sums, int i, DoubleVector& spread, DoubleVector& scale,
                           DoubleVector& minimum) const {
    const DoubleVector n = counts_.vectors[i], heights = heights_.vectors[i];
    const DoubleVector codes = sums.codes.vectors[i];
    spread = n * sums.squares.vectors[i] - codes * codes;
    const DoubleVector divisor = spread == 0 ? spread + 1 : spread;
    scale = (n * sums.products.vectors[i] - codes * heights) / divisor;
    minimum = (heights - scale * codes) / n;
  }

  void try_all() {
    const Narrowing narrow = narrowing(bits_);
    const float narrowest =
        batch_.columns() > kLongGroup ? narrow.narrowest_long : narrow.narrowest;
    const float step = (kWidest - narrowest) / static_cast<float>(kScales - 1);
    const Lanes span = load(highs_) - load(lows_);
    Lanes inverses[kScales * kPlaces], shifts[kScales * kPlaces];
    float geometric = kWidest;
    for (int i = 0; i < kScales; ++i, geometric *= narrow.ratio) {
      const float share = batch_.whole() ? geometric : kWidest - static_cast<float>(i) * step;
      const Lanes inverse = broadcast(top_) / (broadcast(share) * span);
      for (int place = 0; place < kPlaces; ++place) {
        const float part = static_cast<float>(place) / static_cast<float>(kPlaces - 1);
        inverses[i * kPlaces + place] = inverse;
        shifts[i * kPlaces + place] = (broadcast(1.0f - share) * span) * broadcast(part);
      }
    }
    Sums tried[kScales * kPlaces] = {};
    batch_.each_block([&](const LaneBlock& block, int rows) {
      const Lanes low = load(lows_);
      for (int i = 0; i < kScales * kPlaces; ++i) {
        const Lanes inverse = inverses[i], shift = shifts[i];
        Doubles sums[3];
        block.sum(sums, [&](Lanes x, Lanes(&to)[3]) {
          const Lanes height = x - low;
          add_to(to, x, height, to_code((height - shift) * inverse, top_));
        });
        add_sums(sums, rows, tried[i]);
      }
    });
    for (const Sums& sums : tried) keep_better(sums);
  }

  FARTHING_INLINE void add_sums(const Doubles (&sums)[3], int rows, Sums& totals) const {
    batch_.add(sums[0], rows, totals.codes);
    batch_.add(sums[1], rows, totals.squares);
    batch_.add(sums[2], rows, totals.products);
  }

  // A line's gain: of the sum of squared heights, what the best one takes away.
  FARTHING_INLINE void keep_better(const Sums& sums) {
    for (int i = 0; i < kDoubleVectors; ++i) {
      DoubleVector spread, scale, minimum;
      fit(sums, i, spread, scale, minimum);
      DoubleVector gain = scale * sums.products.vectors[i] + minimum * heights_.vectors[i];
      gain = spread == 0 ? gain_.vectors[i] : gain;
      const auto better = gain > gain_.vectors[i];
      gain_.vectors[i] = better ? gain : gain_.vectors[i];
      best_.scales.vectors[i] = better ? scale : best_.scales.vectors[i];
      best_.minimums.vectors[i] = better ? minimum : best_.minimums.vectors[i];
    }
  }

  // The errors that the codes of pairs leave, and what the codes' own lines are made of.
  void judge(const Pair (&pairs)[kGroups], Doubles& errors, Sums& sums) const {
    float scales[kGroups], minimums[kGroups];
    for (int lane = 0; lane < kGroups; ++lane) {
      scales[lane] = farthing::from_half(pairs[lane].scale);
      minimums[lane] = farthing::from_half(pairs[lane].minimum);
    }
    const Lanes low = load(lows_), divisor = load(scales), base = load(minimums);
    const Doubles scale = doubles(divisor), minimum = doubles(base);
    errors = {};
    sums = {};
    batch_.each_block([&](const LaneBlock& block, int rows) {
      Lanes partial[kResidues][3];
      for (auto& three : partial)
        for (Lanes& each : three) each = zero();
      Doubles squares{};
      block.each_column([&](Lanes x, size_t residue) {
        const Lanes code = to_code((x - base) / divisor, top_);
        add_to(partial[residue], x, x - low, code);
        const Doubles value = doubles(x), chosen = doubles(code);
        Doubles error;
        for (int i = 0; i < kDoubleVectors; ++i) {
          const DoubleVector e =
              value.vectors[i] - (scale.vectors[i] * chosen.vectors[i] + minimum.vectors[i]);
          error.vectors[i] = e * e;
        }
        error = Weight::times(x, error);
        for (int i = 0; i < kDoubleVectors; ++i) squares.vectors[i] += error.vectors[i];
      });
      batch_.add(squares, rows, errors);
      Doubles joint[3];
      for (int i = 0; i < 3; ++i) {
        Lanes one[kResidues];
        for (size_t residue = 0; residue < kResidues; ++residue) one[residue] = partial[residue][i];
        joint[i] = joined(one);
      }
      add_sums(joint, rows, sums);
    });
  }

  // From the best line on, codes and the two numbers in turn while that helps.
  void settle() {
    Doubles least;
    Sums sums;
    judge(pairs_, least, sums);
    Lines lines = best_;
    bool going[kGroups];
    for (int lane = 0; lane < kGroups; ++lane) going[lane] = pairs_[lane].scale != 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      Pair tried[kGroups];
      bool any = false;
      for (int lane = 0; lane < kGroups; ++lane) {
        tried[lane] = pairs_[lane];
        if (!going[lane]) continue;
        const Pair pair{
            farthing::to_half(static_cast<float>(lines.scales.v[lane])),
            farthing::to_half(static_cast<float>(lows_[lane] + lines.minimums.v[lane]))};
        going[lane] = (pair.scale & 0x7fff) != 0 && pair.fits() &&
                      (turn == 0 || !(pair == pairs_[lane]));  // whose error is known
        if (!going[lane]) continue;
        tried[lane] = pair;
        any = true;
      }
      if (!any) return;
      Doubles errors, spreads;
      judge(tried, errors, sums);
      for (int i = 0; i < kDoubleVectors; ++i)
        fit(sums, i, spreads.vectors[i], lines.scales.vectors[i], lines.minimums.vectors[i]);
      for (int lane = 0; lane < kGroups; ++lane) {
        if (!going[lane]) continue;
        if (errors.v[lane] < least.v[lane]) {
          least.v[lane] = errors.v[lane];
          pairs_[lane] = tried[lane];
        } else if (turn > 0) {
          going[lane] = false;
        }
        going[lane] = going[lane] && spreads.v[lane] != 0;
      }
    }
  }

  int bits_;
  float top_;
  const Batch& batch_;
  const float (&lows_)[kGroups];
  const float (&highs_)[kGroups];
  Pair (&pairs_)[kGroups];
  Doubles counts_{}, heights_{}, gain_{};
  Lines best_{};
};

// Of a row of values that share a pair; where the scale is 0, code 0.
inline void write_codes(const float* x, size_t n, int bits, Pair pair, uint8_t* codes) {
  const float top = static_cast<float>((1 << bits) - 1);
  const Lanes minimum = broadcast(farthing::from_half(pair.minimum));
  const Lanes scale = broadcast(farthing::from_half(pair.scale));
  for (size_t i = 0; i < n; i += 16) {
    const int count = n - i < 16 ? static_cast<int>(n - i) : 16;
    const Lanes values = count == 16 ? load(x + i) : load_first(x + i, count);
    const Lanes code = pair.scale == 0 ? zero() : to_code((values - minimum) / scale, top);
    int8_t signed_codes[16];
    store_bytes(signed_codes, round_to_int(code - broadcast(128.0f)));
    for (int k = 0; k < count; ++k) codes[i + k] = static_cast<uint8_t>(signed_codes[k] + 128);
  }
}

inline size_t round_affine(const RoundingJob& job, int bits) {
  const float top = static_cast<float>((1 << bits) - 1);
  return first_failure(job, [&](const Batch& batch) {
    float lows[kGroups], highs[kGroups];
    Pair pairs[kGroups];
    for (int lane = 0; lane < kGroups; ++lane) {
      if (lane >= batch.lanes()) {
        lows[lane] = lows[batch.used(lane)];
        highs[lane] = highs[batch.used(lane)];
        pairs[lane] = pairs[batch.used(lane)];
        continue;
      }
      const Range range = batch.range(lane);
      lows[lane] = range.low;
      highs[lane] = range.high;
      pairs[lane] = {farthing::to_half((range.high - range.low) / top),
                     farthing::to_half(range.low)};
      if (!pairs[lane].fits()) return batch.row(lane);
    }
    if (job.method == RoundingMethod::squared)
      LineSearch<Unweighted>(bits, batch, lows, highs, pairs).run();
    if (job.method == RoundingMethod::weighted)
      LineSearch<ByMagnitude>(bits, batch, lows, highs, pairs).run();
    for (int lane = 0; lane < batch.lanes(); ++lane) {
      job.scales[batch.number(lane)] = pairs[lane].scale;
      job.minimums[batch.number(lane)] = pairs[lane].minimum;
      batch.each_row(lane, [&](size_t start) {
        write_codes(job.values + start, batch.columns(), bits, pairs[lane], job.codes + start);
      });
    }
    return job.rows;
  });
}

}  // namespace farthing::FARTHING_ISA
