// Sums over the columns of a group in 16 lanes, column i in lane i % 16. Those of a whole matrix are
// such sums of its rows, added in double, the first row first.
#pragma once

#include <cstddef>
#include <cstring>

namespace farthing {

// Four floats, one operation at a time: vectors of the compiler, whatever the machine has.
using Float4 = float __attribute__((vector_size(16)));

inline constexpr size_t kSumLanes = 16;

inline Float4 all(float x) { return Float4{x, x, x, x}; }

inline Float4 clamp(Float4 x, Float4 low, Float4 high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

// Nearest whole numbers, ties to even, of |x| below 2^22.
inline Float4 nearest_whole(Float4 x) {
  const Float4 shift = all(12582912.0f);  // 1.5 * 2^23: its neighbours are whole numbers apart
  return (x + shift) - shift;
}

struct Lanes {
  Float4 parts[4] = {};

  // By a fixed tree: lanes 4 apart and 8 apart in float, then neighbours in double.
  double total() const {
    const Float4 sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    return (static_cast<double>(sum[0]) + static_cast<double>(sum[1])) +
           (static_cast<double>(sum[2]) + static_cast<double>(sum[3]));
  }
};

// What an error counts for, by the value it is made on.
struct Unweighted {
  static Float4 of(Float4) { return all(1.0f); }
};
struct ByMagnitude {
  static Float4 of(Float4 values) { return values < all(0.0f) ? -values : values; }
};

// The values that share a scale: some columns of a row, or a whole matrix.
struct Shared {
  const float* x;
  size_t rows, cols, stride;
  bool whole;  // a matrix

  const float* row(size_t i) const { return x + i * stride; }
};

// Calls body(values, ones, part) for each four columns, `part` being their place among the lanes.
// Past the end values are 0, and so is what otherwise is `ones`.
template <class Body>
inline void for_fours(const float* x, size_t n, Body&& body) {
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes)
    for (size_t part = 0; part < 4; ++part) {
      Float4 values;
      std::memcpy(&values, x + i + 4 * part, sizeof(values));
      body(values, all(1.0f), part);
    }
  for (size_t part = 0; i < n; ++part) {
    Float4 values = {}, ones = {};
    for (int lane = 0; lane < 4 && i < n; ++lane, ++i) {
      values[lane] = x[i];
      ones[lane] = 1.0f;
    }
    body(values, ones, part);
  }
}

}  // namespace farthing
