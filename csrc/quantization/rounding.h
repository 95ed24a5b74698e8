// From float32 weights to codes and fp16 scales.
//
// Every row is cut into groups of columns; the last one may be shorter. Results are defined bit for
// bit by the plain loops of tests/quantization/rounding_model.py: float32 operations are rounded one
// by one, and sums run in 16 lanes (column i of a group in lane i % 16) that are added in ascending
// order in double. Weights must be finite.
//
// Three methods:
//   range     the scale is the smallest that clips nothing (symmetric schemes: absmax)
//   squared   the scale with the least squared error of many, then, as long as the error falls,
//             codes from the scale and the scale from the codes by least squares. Never worse than
//             range: where range wins, its result is taken.
//   weighted  the same, an error counting by the magnitude of the weight it is made on
// Codes are made with the scale as fp16 holds it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace farthing {

enum class RoundingMethod { range, squared, weighted };

struct RoundingJob {
  const float* values;  // (rows, cols)
  size_t rows, cols, group;
  RoundingMethod method;
  uint8_t* codes;       // (rows, cols)
  uint16_t* scales;     // fp16, (rows, groups of a row)
  uint16_t* minimums;   // fp16, the same; only for round_affine
};

// Each returns the row in which a scale or a minimum would be too large for fp16, or `rows`.

// value = scale * (code - 2^(bits - 1)); range: scale = max|w| / (2^(bits - 1) - 1).
size_t round_symmetric(const RoundingJob& job, int bits);
// value = scale * levels[code], 16 ascending levels from below to above zero; range: no value beyond
// the nearer end: scale = max|w| / min(-levels[0], levels[15]).
size_t round_codebook(const RoundingJob& job, const int8_t* levels);
// value = scale * code + minimum; range: from the smallest value to the largest.
size_t round_affine(const RoundingJob& job, int bits);

}  // namespace farthing
