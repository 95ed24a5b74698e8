// What is asked of values and their codes when the scales are there.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "quantization/rounding.h"

namespace farthing {
namespace {

constexpr int kHalves = 254;  // bins from level -127 to level 0

// Four floats, one operation at a time: vectors of the compiler, whatever the machine has.
using Float4 = float __attribute__((vector_size(16)));

Float4 all(float x) { return Float4{x, x, x, x}; }

// Nearest whole numbers from low to high, ties to even; these are below 2^22.
Float4 nearest_whole(Float4 x, float low, float high) {
  x = x < all(low) ? all(low) : x;
  x = x > all(high) ? all(high) : x;
  const Float4 shift = all(12582912.0f);  // 1.5 * 2^23: its neighbours are whole numbers apart
  return (x + shift) - shift;
}

// Writes code_of(values) of four values at a time.
template <class CodeOf>
void write_fours(const float* x, size_t n, uint8_t* codes, CodeOf&& code_of) {
  for (size_t i = 0; i < n; i += 4) {
    const size_t count = std::min<size_t>(4, n - i);
    Float4 values{};
    std::memcpy(&values, x + i, count * sizeof(float));
    const Float4 code = code_of(values);
    for (size_t k = 0; k < count; ++k) codes[i + k] = static_cast<uint8_t>(code[k]);
  }
}

// Whole numbers from -zero on.
struct Uniform {
  float zero, top;

  Float4 code(Float4 t) const {
    return nearest_whole(t, -zero, top - zero) + all(zero);
  }
};

// Of 16 ascending levels; halfway between two is the lower one.
struct Table {
  float middles[15];

  explicit Table(const float* levels) {
    for (int i = 0; i < 15; ++i) middles[i] = (levels[i] + levels[i + 1]) * 0.5f;
  }
  Float4 code(Float4 t) const {
    Float4 below{};
    for (int i = 0; i < 15; ++i) below += t > all(middles[i]) ? all(1.0f) : all(0.0f);
    return below;
  }
};

template <class Levels>
void write_codes(const CodedMatrix& m, const Levels& levels, const float* values, uint8_t* codes) {
  const size_t group = m.group == kWholeMatrix ? m.cols : m.group;
  for (size_t row = 0; row < m.rows; ++row)
    for (size_t column = 0; column < m.cols; column += group) {
      const size_t n = std::min(group, m.cols - column), start = row * m.cols + column;
      const float scale = m.scales[m.at(row, column)];
      const float minimum = m.minimums == nullptr ? 0.0f : m.minimums[m.at(row, column)];
      write_fours(values + start, n, codes + start, [&](Float4 x) {
        return levels.code(scale == 0 ? all(0.0f) : (x - all(minimum)) / all(scale));
      });
    }
}

// Of whole numbers, by code.
float whole_level(const CodedMatrix& m, int code) {
  return static_cast<float>(m.minimums != nullptr ? code : code - (1 << (m.bits - 1)));
}

}  // namespace

void nearest_codes(const CodedMatrix& m, const float* values, uint8_t* codes) {
  if (m.levels != nullptr) return write_codes(m, Table(m.levels), values, codes);
  const float zero = -whole_level(m, 0), top = static_cast<float>((1 << m.bits) - 1);
  write_codes(m, Uniform{zero, top}, values, codes);
}

SquaredSums squared_error(const CodedMatrix& m, const float* values, const uint8_t* codes) {
  const size_t group = m.group == kWholeMatrix ? m.cols : m.group;
  float levels[256] = {};
  for (int code = 0; code < 1 << m.bits; ++code)
    levels[code] = m.levels == nullptr ? whole_level(m, code) : m.levels[code];
  SquaredSums total{};
  for (size_t row = 0; row < m.rows; ++row) {
    const float* x = values + row * m.cols;
    const uint8_t* code = codes + row * m.cols;
    double errors[4] = {}, squares[4] = {};
    for (size_t column = 0; column < m.cols; column += group) {
      const float scale = m.scales[m.at(row, column)];
      const float minimum = m.minimums == nullptr ? 0.0f : m.minimums[m.at(row, column)];
      const size_t end = std::min(column + group, m.cols);
      for (size_t i = column; i < end; ++i) {
        const float served = scale * levels[code[i]] + minimum;
        const double value = x[i], e = value - static_cast<double>(served);
        errors[i % 4] += e * e;
        squares[i % 4] += value * value;
      }
    }
    total.error += (errors[0] + errors[1]) + (errors[2] + errors[3]);
    total.values += (squares[0] + squares[1]) + (squares[2] + squares[3]);
  }
  return total;
}

Range range_of(const float* values, size_t count) {
  Float4 low = all(values[0]), high = low;
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    Float4 x;
    std::memcpy(&x, values + i, sizeof(x));
    low = x < low ? x : low;
    high = x > high ? x : high;
  }
  Range range{std::min(std::min(low[0], low[1]), std::min(low[2], low[3])),
              std::max(std::max(high[0], high[1]), std::max(high[2], high[3]))};
  for (; i < count; ++i) {
    range.low = std::min(range.low, values[i]);
    range.high = std::max(range.high, values[i]);
  }
  return range;
}

void add_level_sums(const float* values, const float* scales, size_t rows, size_t cols,
                    size_t group, bool by_magnitude, double* sums) {
  const CodedMatrix m{rows, cols, group, 0, scales, nullptr, nullptr};
  const size_t width = group == kWholeMatrix ? cols : group;
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < cols; column += width) {
      const float scale = scales[m.at(row, column)];
      if (scale == 0) continue;
      const double square = static_cast<double>(scale) * scale;
      const size_t end = std::min(column + width, cols);
      for (size_t i = column; i < end; ++i) {
        const float x = values[row * cols + i];
        const float level = x / scale;  // a NaN must not choose a bin
        const float t = level > 127.0f ? 127.0f : level > -127.0f ? level : -127.0f;
        const double weight = by_magnitude ? square * std::fabs(x) : square;
        const int bin = static_cast<int>(t * 2.0f + static_cast<float>(kHalves));
        double* to = sums + 3 * bin;
        to[0] += weight;
        to[1] += weight * t;
        to[2] += weight * t * t;
      }
    }
}

}  // namespace farthing
