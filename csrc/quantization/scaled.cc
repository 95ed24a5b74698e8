// Schemes with one number a group: value = scale * level, levels whole numbers around zero.
#include <algorithm>
#include <cmath>

#include "quantization/half.h"
#include "quantization/lanes16.h"
#include "quantization/rounding.h"

namespace farthing {
namespace {

// The numbers of scales tried: from few to many over the whole stretch, with both signs (levels
// reach further below zero than above); then around the best.
constexpr int kCoarse = 20, kFine = 3;
constexpr int kTurns = 8;  // of codes from the scale and scale from the codes
constexpr size_t kLongGroup = 128;

// The stretch of scales that are tried: max|w| / scale from `first` to `last`.
struct Stretch {
  float first, last;
};

// Levels -2^(bits - 1) .. 2^(bits - 1) - 1.
struct Uniform {
  int bits;
  float low, high;

  explicit Uniform(int bits_)
      : bits(bits_), low(-static_cast<float>(1 << (bits - 1))), high(-low - 1.0f) {}
  float range() const { return high; }
  Stretch stretch(size_t n) const {
    // Measured: where the best scale lies for normal, Laplace and t-distributed weights. Long groups
    // have outliers that are better clipped.
    const bool longer = n > kLongGroup;
    const float first = bits <= 4 ? 0.66f : bits == 5 ? 0.72f : bits == 6 ? 0.8f : 0.88f;
    const float last = bits <= 4   ? (longer ? 4.0f : 1.4f)
                       : bits == 5 ? (longer ? 3.0f : 1.2f)
                       : bits == 6 ? (longer ? 2.0f : 1.1f)
                                   : (longer ? 1.5f : 1.05f);
    return {first * -low, last * -low};
  }
  Float4 level(Float4 t) const { return nearest_whole(clamp(t, all(low), all(high))); }
  uint8_t code(float level) const { return static_cast<uint8_t>(level - low); }
};

// Levels of a table that reaches to about +-127; halfway between two is the lower one.
struct Table {
  static constexpr float kReach = 127.0f;
  float lowest, ends;
  float middles[15], steps[15];
  uint8_t code_of[256];  // by level + 128

  explicit Table(const int8_t* levels)
      : lowest(levels[0]), ends(static_cast<float>(std::min(-levels[0], +levels[15]))), code_of{} {
    for (int i = 0; i < 16; ++i) code_of[levels[i] + 128] = static_cast<uint8_t>(i);
    for (int i = 0; i < 15; ++i) {
      middles[i] = static_cast<float>(levels[i] + levels[i + 1]) * 0.5f;
      steps[i] = static_cast<float>(levels[i + 1] - levels[i]);
    }
  }
  float range() const { return ends; }
  Stretch stretch(size_t n) const {
    return {0.66f * kReach, (n > kLongGroup ? 4.0f : 1.4f) * kReach};
  }
  Float4 level(Float4 t) const {
    Float4 sum = all(lowest);
    for (int i = 0; i < 15; ++i) sum += t > all(middles[i]) ? all(steps[i]) : all(0.0f);
    return sum;
  }
  uint8_t code(float level) const { return code_of[static_cast<int>(level) + 128]; }
};

struct Fit {
  double product = 0, square = 0;  // sums of weight * value * level and of weight * level * level

  // Of the error that no scale would leave, what the best one takes away.
  double gain() const { return square == 0 ? 0 : product * product / square; }
  float scale() const { return square == 0 ? 0.0f : static_cast<float>(product / square); }
};

template <class Weight, class Levels>
Fit fit(const Levels& levels, const float* x, size_t n, float inverse) {
  Lanes products, squares;
  for_fours(x, n, [&](Float4 values, Float4 ones, size_t part) {
    const Float4 level = levels.level(values * all(inverse)) * ones;
    const Float4 weighted = Weight::of(values) * level;
    products.parts[part] += weighted * values;
    squares.parts[part] += weighted * level;
  });
  return {products.total(), squares.total()};
}

// The error that the codes of `scale` leave, and their own best scale.
template <class Weight, class Levels>
double error_of(const Levels& levels, const float* x, size_t n, float scale, Fit& refit) {
  Lanes products, squares;
  double error = 0;
  for_fours(x, n, [&](Float4 values, Float4 ones, size_t part) {
    const Float4 level = levels.level(values / all(scale)) * ones;
    const Float4 weight = Weight::of(values), weighted = weight * level;
    products.parts[part] += weighted * values;
    squares.parts[part] += weighted * level;
    for (int i = 0; i < 4; ++i) {
      const double e = static_cast<double>(values[i]) - static_cast<double>(scale) * level[i];
      error += static_cast<double>(weight[i]) * (e * e);
    }
  });
  refit = {products.total(), squares.total()};
  return error;
}

struct Best {
  uint16_t scale;
  double error;
};

// From `scale` on, codes and scale in turn while that helps.
template <class Weight, class Levels>
void settle(const Levels& levels, const float* x, size_t n, float scale, Best& best) {
  for (int turn = 0; turn < kTurns; ++turn) {
    const uint16_t half = to_half(scale);
    if ((half & 0x7fff) == 0 || (half & 0x7fff) >= kHalfInfinity) return;
    Fit refit;
    const double error = error_of<Weight>(levels, x, n, from_half(half), refit);
    if (error < best.error) {
      best = {half, error};
    } else if (turn > 0) {
      return;
    }
    scale = refit.scale();
  }
}

template <class Weight, class Levels>
Best search(const Levels& levels, const float* x, size_t n, float largest, uint16_t range_scale) {
  const Stretch stretch = levels.stretch(n);
  const float step = (stretch.last - stretch.first) / static_cast<float>(kCoarse - 1);
  double gain = 0;
  float scale = 0, place = 0;
  const auto attempt = [&](float inverse) {
    const Fit tried = fit<Weight>(levels, x, n, inverse / largest);
    if (tried.gain() > gain) {
      gain = tried.gain();
      scale = tried.scale();
      place = inverse;
    }
  };
  for (int i = 0; i < kCoarse; ++i) {
    const float inverse = stretch.first + static_cast<float>(i) * step;
    attempt(inverse);
    attempt(-inverse);
  }
  const float middle = place;
  for (int i = -kFine; i <= kFine; ++i)
    if (i != 0) attempt(middle + static_cast<float>(i) * step / static_cast<float>(kFine + 1));
  Fit refit;
  Best best{range_scale, error_of<Weight>(levels, x, n, from_half(range_scale), refit)};
  settle<Weight>(levels, x, n, scale, best);
  return best;
}

// False if the scale does not fit fp16.
template <class Levels>
bool round_group(const Levels& levels, const float* x, size_t n, RoundingMethod method,
                 uint8_t* codes, uint16_t& scale) {
  float largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  scale = to_half(largest / levels.range());
  if (scale >= kHalfInfinity) return false;
  if (scale != 0 && method == RoundingMethod::squared)
    scale = search<Unweighted>(levels, x, n, largest, scale).scale;
  if (scale != 0 && method == RoundingMethod::weighted)
    scale = search<ByMagnitude>(levels, x, n, largest, scale).scale;
  const float factor = from_half(scale);
  const Float4 none = levels.level(all(0.0f));
  size_t at = 0;
  for_fours(x, n, [&](Float4 values, Float4, size_t) {
    const Float4 level = scale == 0 ? none : levels.level(values / all(factor));
    for (int i = 0; i < 4 && at < n; ++i) codes[at++] = levels.code(level[i]);
  });
  return true;
}

template <class Levels>
size_t round_rows(const RoundingJob& job, const Levels& levels) {
  const size_t groups = (job.cols + job.group - 1) / job.group;
  for (size_t row = 0; row < job.rows; ++row)
    for (size_t g = 0; g < groups; ++g) {
      const size_t at = row * job.cols + g * job.group;
      const size_t n = std::min(job.group, job.cols - g * job.group);
      if (!round_group(levels, job.values + at, n, job.method, job.codes + at,
                       job.scales[row * groups + g]))
        return row;
    }
  return job.rows;
}

}  // namespace

size_t round_symmetric(const RoundingJob& job, int bits) { return round_rows(job, Uniform(bits)); }

size_t round_codebook(const RoundingJob& job, const int8_t* levels) {
  return round_rows(job, Table(levels));
}

}  // namespace farthing
