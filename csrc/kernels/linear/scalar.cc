// The definition of the linear kernels, one output at a time.
#include "kernels/linear/linear.h"
#include "kernels/linear/packed_row.h"
#include "kernels/linear/quantize_groups.h"

namespace farthing::FARTHING_ISA {
namespace {

constexpr int kTokenChunk = 32;  // tokens that share one reading of a row's codes

struct Token {
  const float* values;
  const int8_t* codes;
  const float* scales;
  const int32_t* sums;

  int32_t sum(int first_col, int cols) const {
    int32_t total = 0;
    for (int i = first_col / kSumRun; i < (first_col + cols) / kSumRun; ++i) total += sums[i];
    return total;
  }
};

Token token(const Activations& a, int32_t t) {
  const size_t row = static_cast<size_t>(t);
  Token r{};
  if (a.values != nullptr) r.values = a.values + row * static_cast<size_t>(a.cols);
  if (a.codes != nullptr) {
    r.codes = a.codes + row * a.code_stride;
    r.scales = a.scales + row * static_cast<size_t>(a.groups());
    r.sums = a.sums + row * static_cast<size_t>(a.sums_per_row());
  }
  return r;
}

int32_t dot(const int16_t* codes, const int8_t* activations, int count) {
  int32_t sum = 0;
  for (int k = 0; k < count; ++k) sum += codes[k] * activations[k];
  return sum;
}

// One activation group of one row against one token: the next link of the chain `acc`.
float add_group(const PackedRow& row, int group, const int16_t* codes, const Token& a, float acc) {
  const SchemeTraits& traits = row.traits;
  const int cols = traits.activation_group, first = group * cols;
  int32_t isum = 0, msum = 0;
  if (traits.sub_cols == 0) {
    isum = dot(codes, a.codes + first, cols);
    if (traits.minimum) msum = a.sum(first, cols);
  }
  for (int j = 0; traits.sub_cols != 0 && j < cols / traits.sub_cols; ++j) {
    const int k = j * traits.sub_cols;
    isum += row.sub_scale(group, j) * dot(codes + k, a.codes + first + k, traits.sub_cols);
    if (traits.minimum) msum += row.sub_minimum(group, j) * a.sum(first + k, traits.sub_cols);
  }
  const int scaled = first / traits.group;  // the group of the weights
  acc = __builtin_fmaf(row.scale(scaled) * a.scales[group], static_cast<float>(isum), acc);
  if (traits.minimum) {
    const float m = row.minimum(scaled) * a.scales[group];
    acc = __builtin_fmaf(traits.sub_cols == 0 ? m : -m, static_cast<float>(msum), acc);
  }
  return acc;
}

// One run of one row of floats against one token: the sum of all runs up to it.
float add_run(const PackedRow& row, int32_t first, int32_t end, const float* x, float acc) {
  float chain = 0.0f;
  for (int32_t k = first; k < end; ++k) chain = __builtin_fmaf(row.element(k), x[k], chain);
  return first == 0 ? chain : acc + chain;
}

void linear(const MatrixView& w, int32_t block_begin, int32_t block_end, const Activations& a,
            int32_t row_begin, int32_t row_end, const float* bias, const float* add, float* out,
            size_t out_stride) {
  const SchemeTraits& traits = scheme_traits(w.scheme);
  const int32_t end = block_end * kLanes < w.rows ? block_end * kLanes : w.rows;
  for (int32_t r = block_begin * kLanes; r < end; ++r) {
    const PackedRow row = packed_row(w, r);
    for (int32_t begin = row_begin; begin < row_end; begin += kTokenChunk) {
      const int32_t count = row_end - begin < kTokenChunk ? row_end - begin : kTokenChunk;
      float acc[kTokenChunk] = {};
      if (traits.group == 0) {
        for (int32_t k = 0; k < w.cols; k += kFloatRun) {
          const int32_t run_end = w.cols - k < kFloatRun ? w.cols : k + kFloatRun;
          for (int32_t t = 0; t < count; ++t)
            acc[t] = add_run(row, k, run_end, token(a, begin + t).values, acc[t]);
        }
      } else {
        for (int32_t g = 0; g < a.groups(); ++g) {
          int16_t codes[kSuperCols];
          const int first = g * traits.activation_group;
          for (int k = 0; k < traits.activation_group; ++k)
            codes[k] = static_cast<int16_t>(row.value(row.quad(first + k), k % 4));
          for (int32_t t = 0; t < count; ++t)
            acc[t] = add_group(row, g, codes, token(a, begin + t), acc[t]);
        }
      }
      for (int32_t t = 0; t < count; ++t) {
        const size_t at = static_cast<size_t>(begin + t) * out_stride + static_cast<size_t>(r);
        float y = acc[t];
        if (bias != nullptr) y = y + bias[r];
        if (add != nullptr) y = y + add[at];
        out[at] = y;
      }
    }
  }
}

void quantize_group(const float* x, int32_t cols, int8_t* codes, float* scale, int32_t* sums) {
  // Magnitudes compare as integers; so compared, infinities and NaNs are the largest.
  int32_t largest = 0;
  for (int32_t k = 0; k < cols; ++k) {
    const int32_t magnitude = std::bit_cast<int32_t>(x[k]) & 0x7fffffff;
    if (magnitude > largest) largest = magnitude;
  }
  const float absmax = std::bit_cast<float>(largest);
  const bool finite = largest < 0x7f800000;
  const bool zero = finite && absmax < 1e-30f;
  const float inverse = 127.0f / absmax;
  *scale = zero ? 0.0f : absmax / 127.0f;
  for (int32_t k = 0; k < cols; ++k) {
    // Adding 1.5 * 2^23 leaves the integer, rounded to nearest even, in the low mantissa bits.
    const float shifted = x[k] * inverse + 12582912.0f;
    const int32_t code = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(12582912.0f);
    codes[k] = finite && !zero ? static_cast<int8_t>(code) : int8_t{0};
  }
  for (int32_t k = 0; k < cols; k += kSumRun) {
    int32_t sum = 0;
    for (int32_t i = k; i < k + kSumRun; ++i) sum += codes[i];
    sums[k / kSumRun] = sum;
  }
}

void quantize_row(const float* x, int32_t cols, int32_t group, int8_t* codes, float* scales,
                  int32_t* sums) {
  quantize_groups(quantize_group, x, cols, group, codes, scales, sums);
}

}  // namespace

extern const LinearKernels linear_table;
const LinearKernels linear_table = {linear, dequantize_row, quantize_row};

}  // namespace farthing::FARTHING_ISA
