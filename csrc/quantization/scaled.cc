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
// Of a whole matrix, whose outliers may lie anywhere, each scale tried is so many times smaller.
constexpr float kFirstWhole = 0.66f, kRatio = 1.18f, kFineRatio = 0.042f;

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
    const float last = bits <= 3   ? (longer ? 4.0f : 2.0f)
                       : bits == 4 ? (longer ? 4.0f : 1.4f)
                       : bits == 5 ? (longer ? 3.0f : 1.2f)
                       : bits == 6 ? (longer ? 2.0f : 1.1f)
                                   : (longer ? 1.5f : 1.05f);
    return {first * -low, last * -low};
  }
  float reach() const { return -low; }
  Float4 level(Float4 t) const { return nearest_whole(clamp(t, all(low), all(high))); }
  uint8_t code(float level) const { return static_cast<uint8_t>(level - low); }
};

// Levels of a table that reaches to about +-127; halfway between two is the lower one.
struct Table {
  static constexpr float kReach = 127.0f;
  float lowest, ends;
  float middles[15], steps[15];
  uint8_t code_of[256];  // by level + 128

  Table(const int8_t* levels, float range) : lowest(levels[0]), ends(range), code_of{} {
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
  float reach() const { return kReach; }
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
Fit fit(const Levels& levels, const Shared& group, float inverse) {
  Fit sum;
  for (size_t row = 0; row < group.rows; ++row) {
    Lanes products, squares;
    for_fours(group.row(row), group.cols, [&](Float4 values, Float4 ones, size_t part) {
      const Float4 level = levels.level(values * all(inverse)) * ones;
      const Float4 weighted = Weight::of(values) * level;
      products.parts[part] += weighted * values;
      squares.parts[part] += weighted * level;
    });
    sum.product += products.total();
    sum.square += squares.total();
  }
  return sum;
}

// The error that the codes of `scale` leave, and their own best scale.
template <class Weight, class Levels>
double error_of(const Levels& levels, const Shared& group, float scale, Fit& refit) {
  refit = {};
  double total = 0;
  for (size_t row = 0; row < group.rows; ++row) {
    Lanes products, squares;
    double error = 0;
    for_fours(group.row(row), group.cols, [&](Float4 values, Float4 ones, size_t part) {
      const Float4 level = levels.level(values / all(scale)) * ones;
      const Float4 weight = Weight::of(values), weighted = weight * level;
      products.parts[part] += weighted * values;
      squares.parts[part] += weighted * level;
      for (int i = 0; i < 4; ++i) {
        const double e = static_cast<double>(values[i]) - static_cast<double>(scale) * level[i];
        error += static_cast<double>(weight[i]) * (e * e);
      }
    });
    total += error;
    refit.product += products.total();
    refit.square += squares.total();
  }
  return total;
}

struct Best {
  uint16_t scale;
  double error;
};

// From `scale` on, codes and scale in turn while that helps.
template <class Weight, class Levels>
void settle(const Levels& levels, const Shared& group, float scale, Best& best) {
  for (int turn = 0; turn < kTurns; ++turn) {
    const uint16_t half = to_half(scale);
    if ((half & 0x7fff) == 0 || (half & 0x7fff) >= kHalfInfinity) return;
    Fit refit;
    const double error = error_of<Weight>(levels, group, from_half(half), refit);
    if (error < best.error) {
      best = {half, error};
    } else if (turn > 0) {
      return;
    }
    scale = refit.scale();
  }
}

template <class Weight, class Levels>
Best search(const Levels& levels, const Shared& group, float largest, uint16_t range_scale) {
  const Stretch stretch = levels.stretch(group.cols);
  const float step = (stretch.last - stretch.first) / static_cast<float>(kCoarse - 1);
  double gain = 0;
  float scale = 0, place = 0;
  const auto attempt = [&](float inverse) {
    const Fit tried = fit<Weight>(levels, group, inverse / largest);
    if (tried.gain() > gain) {
      gain = tried.gain();
      scale = tried.scale();
      place = inverse;
    }
  };
  float geometric = kFirstWhole * levels.reach();
  for (int i = 0; i < kCoarse; ++i) {
    const float inverse = group.whole ? geometric : stretch.first + static_cast<float>(i) * step;
    attempt(inverse);
    attempt(-inverse);
    geometric *= kRatio;
  }
  const float middle = place;
  const float fine = group.whole ? middle * kFineRatio : step / static_cast<float>(kFine + 1);
  for (int i = -kFine; i <= kFine; ++i)
    if (i != 0) attempt(middle + static_cast<float>(i) * fine);
  Fit refit;
  Best best{range_scale, error_of<Weight>(levels, group, from_half(range_scale), refit)};
  settle<Weight>(levels, group, scale, best);
  return best;
}

// False if the scale does not fit fp16. Codes lie as the values do.
template <class Levels>
bool round_group(const Levels& levels, const Shared& group, RoundingMethod method, uint8_t* codes,
                 uint16_t& scale) {
  float largest = 0;
  for (size_t row = 0; row < group.rows; ++row) {
    const Range range = range_of(group.row(row), group.cols);
    largest = std::max(largest, std::max(-range.low, range.high));
  }
  scale = to_half(largest / levels.range());
  if (scale >= kHalfInfinity) return false;
  if (scale != 0 && method == RoundingMethod::squared)
    scale = search<Unweighted>(levels, group, largest, scale).scale;
  if (scale != 0 && method == RoundingMethod::weighted)
    scale = search<ByMagnitude>(levels, group, largest, scale).scale;
  const float factor = from_half(scale);
  const Float4 none = levels.level(all(0.0f));
  for (size_t row = 0; row < group.rows; ++row) {
    uint8_t* to = codes + row * group.stride;
    uint8_t* const end = to + group.cols;
    for_fours(group.row(row), group.cols, [&](Float4 values, Float4, size_t) {
      const Float4 level = scale == 0 ? none : levels.level(values / all(factor));
      for (int i = 0; i < 4 && to < end; ++i) *to++ = levels.code(level[i]);
    });
  }
  return true;
}

template <class Levels>
size_t round_rows(const RoundingJob& job, const Levels& levels) {
  if (job.group == kWholeMatrix) {
    const Shared matrix{job.values, job.rows, job.cols, job.cols, true};
    return round_group(levels, matrix, job.method, job.codes, *job.scales) ? job.rows : 0;
  }
  const size_t groups = job.groups();
  for (size_t row = 0; row < job.rows; ++row)
    for (size_t g = 0; g < groups; ++g) {
      const size_t at = row * job.cols + g * job.group;
      const size_t n = std::min(job.group, job.cols - g * job.group);
      const Shared group{job.values + at, 1, n, n, false};
      if (!round_group(levels, group, job.method, job.codes + at, job.scales[row * groups + g]))
        return row;
    }
  return job.rows;
}

}  // namespace

size_t round_symmetric(const RoundingJob& job, int bits) { return round_rows(job, Uniform(bits)); }

size_t round_codebook(const RoundingJob& job, const int8_t* levels, float reach) {
  return round_rows(job, Table(levels, reach));
}

}  // namespace farthing
