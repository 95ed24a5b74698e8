// Schemes with one number a group: value = scale * level, levels whole numbers around zero.
#pragma once

#include "quantization/batches.h"
#include "quantization/half.h"
#include "quantization/levels.h"

namespace farthing::FARTHING_ISA {

// Sums of weight * value * level and of weight * level * level for each lane.
struct Fit {
  Doubles product, square;

  FARTHING_INLINE float scale(int lane) const {
    return square.v[lane] == 0 ? 0.0f : static_cast<float>(product.v[lane] / square.v[lane]);
  }
};

// The best scales for a batch, each lane's own.
template <class Weight, class Levels>
class ScaleSearch {
 public:
  // `largest`: of the values' magnitudes. `scales`: those that clip nothing, replaced by the best;
  // where one is 0 nothing is to be found.
  ScaleSearch(const Levels& levels, const Batch& batch, const float (&largest)[kGroups],
              uint16_t (&scales)[kGroups])
      : levels_(levels), batch_(batch), largest_(largest), scales_(scales) {}

  void run() {
    try_all();
    settle();
  }

 private:
  // The numbers of scales tried: from few to many over the whole stretch, with both signs (levels
  // reach further below zero than above); then around the best.
  static constexpr int kCoarse = 20, kFine = 3;
  static constexpr int kTurns = 8;  // of codes from the scale and scale from the codes
  // Of a whole matrix, whose outliers may lie anywhere, each scale tried is so many times smaller.
  static constexpr float kFirstWhole = 0.66f, kRatio = 1.18f, kFineRatio = 0.042f;

  void try_all() {
    const Stretch stretch = levels_.stretch(batch_.columns());
    const float step = (stretch.last - stretch.first) / static_cast<float>(kCoarse - 1);
    Lanes inverses[2 * kCoarse];
    float geometric = kFirstWhole * levels_.reach();
    for (int i = 0; i < kCoarse; ++i, geometric *= kRatio) {
      const float inverse =
          batch_.whole() ? geometric : stretch.first + static_cast<float>(i) * step;
      inverses[2 * i] = broadcast(inverse);
      inverses[2 * i + 1] = broadcast(-inverse);
    }
    attempt(inverses);
    float places[kGroups];
    for (int lane = 0; lane < kGroups; ++lane) places[lane] = static_cast<float>(place_.v[lane]);
    const Lanes middle = load(places);
    const Lanes fine = batch_.whole() ? middle * broadcast(kFineRatio)
                                      : broadcast(step / static_cast<float>(kFine + 1));
    Lanes around[2 * kFine];
    for (int i = 0; i < kFine; ++i) {
      around[i] = middle + broadcast(static_cast<float>(i - kFine)) * fine;
      around[kFine + i] = middle + broadcast(static_cast<float>(i + 1)) * fine;
    }
    attempt(around);
  }

  // Fits the levels of each scale largest / inverse, and keeps the best fit.
  template <int kCount>
  void attempt(const Lanes (&inverses)[kCount]) {
    Fit fits[kCount] = {};
    Lanes factors[kCount];
    for (int i = 0; i < kCount; ++i) factors[i] = inverses[i] / load(largest_);
    batch_.each_block([&](const LaneBlock& block, int rows) {
      for (int i = 0; i < kCount; ++i) {
        const Lanes factor = factors[i];
        Doubles sums[2];
        block.sum(sums, [&](Lanes x, Lanes(&to)[2]) {
          const Lanes level = levels_.level(x * factor), weighted = Weight::times(x, level);
          to[0] = to[0] + weighted * x;
          to[1] = to[1] + weighted * level;
        });
        batch_.add(sums[0], rows, fits[i].product);
        batch_.add(sums[1], rows, fits[i].square);
      }
    });
    for (int i = 0; i < kCount; ++i) keep_better(fits[i], inverses[i]);
  }

  // A fit's gain: of the error that no scale would leave, what the best one takes away.
  FARTHING_INLINE void keep_better(const Fit& fit, Lanes inverse) {
    const Doubles places = doubles(inverse);
    for (int i = 0; i < kDoubleVectors; ++i) {
      const DoubleVector product = fit.product.vectors[i], square = fit.square.vectors[i];
      const DoubleVector divisor = square == 0 ? square + 1 : square;  // product is 0, too
      const DoubleVector gain = product * product / divisor;
      const auto better = gain > gain_.vectors[i];
      gain_.vectors[i] = better ? gain : gain_.vectors[i];
      best_.product.vectors[i] = better ? product : best_.product.vectors[i];
      best_.square.vectors[i] = better ? square : best_.square.vectors[i];
      place_.vectors[i] = better ? places.vectors[i] : place_.vectors[i];
    }
  }

  // The errors that the codes of scales leave, and their own best scales.
  void judge(const uint16_t (&halves)[kGroups], Doubles& errors, Fit& refit) const {
    float scales[kGroups];
    for (int lane = 0; lane < kGroups; ++lane) scales[lane] = farthing::from_half(halves[lane]);
    const Lanes divisor = load(scales);
    const Doubles scale = doubles(divisor);
    errors = {};
    refit = {};
    batch_.each_block([&](const LaneBlock& block, int rows) {
      Lanes products[kResidues], squares[kResidues];
      for (size_t i = 0; i < kResidues; ++i) products[i] = squares[i] = zero();
      Doubles sums{};
      block.each_column([&](Lanes x, size_t residue) {
        const Lanes level = levels_.level(x / divisor), weighted = Weight::times(x, level);
        products[residue] = products[residue] + weighted * x;
        squares[residue] = squares[residue] + weighted * level;
        const Doubles value = doubles(x), chosen = doubles(level);
        Doubles error;
        for (int i = 0; i < kDoubleVectors; ++i) {
          const DoubleVector e = value.vectors[i] - scale.vectors[i] * chosen.vectors[i];
          error.vectors[i] = e * e;
        }
        error = Weight::times(x, error);
        for (int i = 0; i < kDoubleVectors; ++i) sums.vectors[i] += error.vectors[i];
      });
      batch_.add(sums, rows, errors);
      batch_.add(joined(products), rows, refit.product);
      batch_.add(joined(squares), rows, refit.square);
    });
  }

  // From the best fit's scale on, codes and scale in turn while that helps.
  void settle() {
    Doubles least;
    Fit fit;
    judge(scales_, least, fit);
    fit = best_;
    bool going[kGroups];
    for (int lane = 0; lane < kGroups; ++lane) going[lane] = scales_[lane] != 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      uint16_t halves[kGroups];
      bool any = false;
      for (int lane = 0; lane < kGroups; ++lane) {
        halves[lane] = scales_[lane];
        if (!going[lane]) continue;
        const uint16_t half = farthing::to_half(fit.scale(lane));
        going[lane] = (half & 0x7fff) != 0 && (half & 0x7fff) < kHalfInfinity &&
                      (turn == 0 || half != scales_[lane]);  // whose error is known
        if (!going[lane]) continue;
        halves[lane] = half;
        any = true;
      }
      if (!any) return;
      Doubles errors;
      judge(halves, errors, fit);
      for (int lane = 0; lane < kGroups; ++lane) {
        if (!going[lane]) continue;
        if (errors.v[lane] < least.v[lane]) {
          least.v[lane] = errors.v[lane];
          scales_[lane] = halves[lane];
        } else if (turn > 0) {
          going[lane] = false;
        }
      }
    }
  }

  const Levels& levels_;
  const Batch& batch_;
  const float (&largest_)[kGroups];
  uint16_t (&scales_)[kGroups];
  Doubles gain_{}, place_{};
  Fit best_{};
};

// Of a row of values that share a scale; where it is 0, the code of level 0.
template <class Levels>
void write_codes(const Levels& levels, const float* x, size_t n, uint16_t scale, uint8_t* codes) {
  const Lanes divisor = broadcast(farthing::from_half(scale));
  for (size_t i = 0; i < n; i += 16) {
    const int count = n - i < 16 ? static_cast<int>(n - i) : 16;
    const Lanes values = count == 16 ? load(x + i) : load_first(x + i, count);
    int8_t chosen[16];
    store_bytes(chosen, round_to_int(levels.level(scale == 0 ? zero() : values / divisor)));
    for (int k = 0; k < count; ++k) codes[i + k] = levels.code(chosen[k]);
  }
}

template <class Levels>
size_t round_scaled(const RoundingJob& job, const Levels& levels) {
  return first_failure(job, [&](const Batch& batch) {
    float largest[kGroups];
    uint16_t scales[kGroups];
    for (int lane = 0; lane < kGroups; ++lane) {
      if (lane >= batch.lanes()) {
        largest[lane] = largest[batch.used(lane)];
        scales[lane] = scales[batch.used(lane)];
        continue;
      }
      const Range range = batch.range(lane);
      const float most = -range.low > range.high ? -range.low : range.high;
      largest[lane] = most > 0 ? most : 0.0f;  // not -0
      scales[lane] = farthing::to_half(largest[lane] / levels.range());
      if (scales[lane] >= kHalfInfinity) return batch.row(lane);
    }
    if (job.method == RoundingMethod::squared)
      ScaleSearch<Unweighted, Levels>(levels, batch, largest, scales).run();
    if (job.method == RoundingMethod::weighted)
      ScaleSearch<ByMagnitude, Levels>(levels, batch, largest, scales).run();
    for (int lane = 0; lane < batch.lanes(); ++lane) {
      job.scales[batch.number(lane)] = scales[lane];
      batch.each_row(lane, [&](size_t start) {
        write_codes(levels, job.values + start, batch.columns(), scales[lane], job.codes + start);
      });
    }
    return job.rows;
  });
}

}  // namespace farthing::FARTHING_ISA
