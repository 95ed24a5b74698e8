// From float32 weights to codes and fp16 scales.
//
// Every row is cut into groups of columns; the last one may be shorter. Or the whole matrix is one
// group. Results are defined bit for bit by the plain loops of
// tests/quantization/rounding_model.py: float32 operations are rounded one by one, and the sum of a
// row is of 16 partial sums (column i in number i % 16), joined by a fixed tree; those of rows are
// added in double, the first row first. Weights must be finite.
//
// Three methods:
//   range     the scale is the smallest that clips nothing (symmetric schemes: absmax)
//   squared   the scale with the least squared error of many, then, as long as the error falls,
//             codes from the scale and the scale from the codes by least squares. Never worse than
//             range: where range wins, its result is taken.
//   weighted  the same, an error counting by the magnitude of the weight it is made on
// Codes are made with the scale as fp16 holds it.
#pragma once

#include "core/inline.h"
#include "core/isa.h"

#include <cstddef>
#include <cstdint>

namespace farthing {

enum class RoundingMethod { range, squared, weighted };

inline constexpr size_t kWholeMatrix = 0;  // a group, where the matrix has one scale

struct RoundingJob {
  const float* values;  // (rows, cols)
  size_t rows, cols, group;
  RoundingMethod method;
  uint8_t* codes;       // (rows, cols)
  uint16_t* scales;     // fp16, (rows, groups of a row), or one
  uint16_t* minimums;   // fp16, the same; only for affine

  FARTHING_INLINE size_t groups() const { return group == kWholeMatrix ? 1 : (cols + group - 1) / group; }
};

// Each returns the first row in which a scale or a minimum would be too large for fp16, or `rows`.
// Throws std::bad_alloc.
struct RoundingKernels {
  // value = scale * (code - 2^(bits - 1)); range: scale = max|w| / (2^(bits - 1) - 1).
  size_t (*symmetric)(const RoundingJob& job, int bits);
  // value = scale * levels[code], 16 ascending levels; range: scale = max|w| / reach.
  size_t (*codebook)(const RoundingJob& job, const int8_t* levels, float reach);
  // value = scale * code + minimum; range: from the smallest value to the largest.
  size_t (*affine)(const RoundingJob& job, int bits);
};
const RoundingKernels& rounding_kernels(Isa isa);

// How the codes of a matrix are read: value = scale * level (+ minimum), the numbers in float32.
struct CodedMatrix {
  size_t rows, cols, group;
  int bits;
  const float* scales;    // as in RoundingJob
  const float* minimums;  // null: none
  const float* levels;    // 2^bits, ascending; null: whole numbers, from 0 or -2^(bits - 1)

  size_t groups() const { return group == kWholeMatrix ? 1 : (cols + group - 1) / group; }
  size_t at(size_t row, size_t column) const {
    return group == kWholeMatrix ? 0 : row * groups() + column / group;
  }
};

// The nearest codes of values (rows, cols); where a scale is 0, those of level (or code) 0.
void nearest_codes(const CodedMatrix& matrix, const float* values, uint8_t* codes);

// Sums of squared differences between values and what their codes stand for, which is rounded to
// float32 as in serving, and of squared values: of a row in double, column i in lane i % 4, the rows'
// sums added in ascending order.
struct SquaredSums {
  double error, values;
};
SquaredSums squared_error(const CodedMatrix& matrix, const float* values, const uint8_t* codes);

// The least and the largest of finite values.
struct Range {
  float low, high;
};
Range range_of(const float* values, size_t count);

// What a codebook of whole numbers from -127 to 127 is chosen by. Each t = value / scale, held to
// that range, falls between two neighbouring multiples of a half: bin floor(2 * t) + 254. To the
// bin's sums of weight, weight * t and weight * t * t is added what an error at t counts for: the
// square of the scale, with `by_magnitude` times |value|. Groups whose scale is 0 are left out.
inline constexpr size_t kLevelBins = 509;
void add_level_sums(const float* values, const float* scales, size_t rows, size_t cols,
                    size_t group, bool by_magnitude, double* sums);  // (kLevelBins, 3)

}  // namespace farthing
