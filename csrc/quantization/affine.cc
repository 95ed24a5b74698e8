// Schemes with two numbers a group: value = scale * code + minimum.
#include <algorithm>
#include <cmath>

#include "quantization/half.h"
#include "quantization/lanes16.h"
#include "quantization/rounding.h"

namespace farthing {
namespace {

// Scales tried, as shares of the one that spans the range, and for each the places of what it does
// not span: all of it above, half of it, none.
constexpr int kScales = 17, kPlaces = 3;
constexpr float kWidest = 1.1f;
// The narrowest share in a group, in a long one, and of a whole matrix, whose outliers may lie
// anywhere, what each share is of the one before: many codes are better spent on all of the range.
struct Narrowing {
  float narrowest, narrowest_long, ratio;
};
Narrowing narrowing(int bits) {
  if (bits <= 5) return {0.6f, 0.2f, 0.84f};
  if (bits == 6) return {0.75f, 0.4f, 0.9f};
  return bits == 7 ? Narrowing{0.85f, 0.6f, 0.95f} : Narrowing{0.9f, 0.75f, 0.97f};
}
constexpr int kTurns = 8;  // of codes from the line and the line from the codes
constexpr size_t kLongGroup = 128;

struct Line {
  double scale, minimum;
};

// Weighted sums over the columns: of ones, of codes, their squares, and how far values lie above the
// smallest.
struct Sums {
  double n, codes, squares, products, heights;

  bool flat() const { return n * squares == codes * codes; }  // all codes are one
  Line line() const {
    const double scale = (n * products - codes * heights) / (n * squares - codes * codes);
    return {scale, (heights - scale * codes) / n};
  }
  // Of the sum of squared heights, what the best line takes away.
  double gain() const {
    const Line best = line();
    return best.scale * products + best.minimum * heights;
  }
  void operator+=(const Sums& other) {
    n += other.n;
    codes += other.codes;
    squares += other.squares;
    products += other.products;
    heights += other.heights;
  }
};

// Two fp16 numbers.
struct Pair {
  uint16_t scale, minimum;

  bool fits() const {
    return (scale & 0x7fff) < kHalfInfinity && (minimum & 0x7fff) < kHalfInfinity;
  }
};

struct Best {
  Pair pair;
  double error;
};

class Group {
 public:
  Group(const Shared& values, int bits)
      : values_(values),
        top_(static_cast<float>((1 << bits) - 1)),
        narrowing_(narrowing(bits)),
        low_(values.x[0]),
        high_(values.x[0]) {
    for (size_t row = 0; row < values.rows; ++row) {
      const Range range = range_of(values.row(row), values.cols);
      low_ = std::min(low_, range.low);
      high_ = std::max(high_, range.high);
    }
  }

  Pair range() const { return {to_half((high_ - low_) / top_), to_half(low_)}; }

  template <class Weight>
  Pair search() const {
    Best best{range(), error_of<Weight>(range()).error};
    settle<Weight>(widest_gain<Weight>(), best);
    return best.pair;
  }

  void write_codes(Pair pair, uint8_t* codes) const {
    for (size_t row = 0; row < values_.rows; ++row) {
      uint8_t* to = codes + row * values_.stride;
      uint8_t* const end = to + values_.cols;
      for_fours(values_.row(row), values_.cols, [&](Float4 values, Float4, size_t) {
        const Float4 code = nearest_code(values, pair);
        for (int i = 0; i < 4 && to < end; ++i) *to++ = static_cast<uint8_t>(code[i]);
      });
    }
  }

 private:
  struct Judged {
    double error;
    Sums sums;
  };

  Float4 to_code(Float4 t) const { return nearest_whole(clamp(t, all(0.0f), all(top_))); }
  Float4 nearest_code(Float4 values, Pair pair) const {
    if (pair.scale == 0) return all(0.0f);
    return to_code((values - all(from_half(pair.minimum))) / all(from_half(pair.scale)));
  }

  // Sums for the codes that `code_of` gives to values.
  template <class Weight, class CodeOf>
  Sums sums_of(CodeOf&& code_of) const {
    Sums sums{};
    for (size_t row = 0; row < values_.rows; ++row) {
      Lanes counts, codes, squares, products, heights;
      for_fours(values_.row(row), values_.cols, [&](Float4 values, Float4 ones, size_t part) {
        const Float4 weight = Weight::of(values) * ones;
        const Float4 code = code_of(values), height = values - all(low_);
        const Float4 weighted = weight * code;
        counts.parts[part] += weight;
        codes.parts[part] += weighted;
        squares.parts[part] += weighted * code;
        products.parts[part] += weighted * height;
        heights.parts[part] += weight * height;
      });
      sums += {counts.total(), codes.total(), squares.total(), products.total(), heights.total()};
    }
    return sums;
  }

  // The line of the codes that leave the least error, of all scales and places tried.
  template <class Weight>
  Line widest_gain() const {
    const float span = high_ - low_;
    const float narrowest =
        values_.cols > kLongGroup ? narrowing_.narrowest_long : narrowing_.narrowest;
    const float step = (kWidest - narrowest) / static_cast<float>(kScales - 1);
    double gain = 0;
    Line line{0, 0};
    float geometric = kWidest;
    for (int i = 0; i < kScales; ++i, geometric *= narrowing_.ratio) {
      const float share = values_.whole ? geometric : kWidest - static_cast<float>(i) * step;
      const float inverse = top_ / (share * span);
      for (int place = 0; place < kPlaces; ++place) {
        const float shift =
            (1.0f - share) * span * (static_cast<float>(place) / static_cast<float>(kPlaces - 1));
        const Sums sums = sums_of<Weight>([&](Float4 values) {
          return to_code(((values - all(low_)) - all(shift)) * all(inverse));
        });
        if (sums.flat() || !(sums.gain() > gain)) continue;
        gain = sums.gain();
        line = sums.line();
      }
    }
    return line;
  }

  // The codes of two numbers: the error they leave, and what their own line is made of.
  template <class Weight>
  Judged error_of(Pair pair) const {
    const double scale = from_half(pair.scale), minimum = from_half(pair.minimum);
    double total = 0;
    const Sums sums = sums_of<Weight>([&](Float4 values) { return nearest_code(values, pair); });
    for (size_t row = 0; row < values_.rows; ++row) {
      double error = 0;
      for_fours(values_.row(row), values_.cols, [&](Float4 values, Float4 ones, size_t) {
        const Float4 code = nearest_code(values, pair);
        const Float4 weight = Weight::of(values) * ones;
        for (int i = 0; i < 4; ++i) {
          const double e = static_cast<double>(values[i]) - (scale * code[i] + minimum);
          error += static_cast<double>(weight[i]) * (e * e);
        }
      });
      total += error;
    }
    return {total, sums};
  }

  // From `line` on, codes and the two numbers in turn while that helps.
  template <class Weight>
  void settle(Line line, Best& best) const {
    for (int turn = 0; turn < kTurns; ++turn) {
      const Pair pair{to_half(static_cast<float>(line.scale)),
                      to_half(static_cast<float>(low_ + line.minimum))};
      if (pair.scale == 0 || !pair.fits()) return;
      const Judged judged = error_of<Weight>(pair);
      if (judged.error < best.error) {
        best = {pair, judged.error};
      } else if (turn > 0) {
        return;
      }
      if (judged.sums.flat()) return;
      line = judged.sums.line();
    }
  }

  Shared values_;
  float top_;
  Narrowing narrowing_;
  float low_, high_;
};

// False if the scale or the minimum does not fit fp16.
bool round_group(const Shared& values, int bits, RoundingMethod method, uint8_t* codes,
                 uint16_t& scale, uint16_t& minimum) {
  const Group group(values, bits);
  Pair pair = group.range();
  if (!pair.fits()) return false;
  if (pair.scale != 0 && method == RoundingMethod::squared) pair = group.search<Unweighted>();
  if (pair.scale != 0 && method == RoundingMethod::weighted) pair = group.search<ByMagnitude>();
  group.write_codes(pair, codes);
  scale = pair.scale;
  minimum = pair.minimum;
  return true;
}

}  // namespace

size_t round_affine(const RoundingJob& job, int bits) {
  if (job.group == kWholeMatrix) {
    const Shared matrix{job.values, job.rows, job.cols, job.cols, true};
    return round_group(matrix, bits, job.method, job.codes, *job.scales, *job.minimums) ? job.rows
                                                                                        : 0;
  }
  const size_t groups = job.groups();
  for (size_t row = 0; row < job.rows; ++row)
    for (size_t g = 0; g < groups; ++g) {
      const size_t at = row * job.cols + g * job.group, to = row * groups + g;
      const size_t n = std::min(job.group, job.cols - g * job.group);
      if (!round_group({job.values + at, 1, n, n, false}, bits, job.method, job.codes + at,
                       job.scales[to], job.minimums[to]))
        return row;
    }
  return job.rows;
}

}  // namespace farthing
