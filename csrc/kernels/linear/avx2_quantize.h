// Activations to int8 with AVX2.
#pragma once

#include <immintrin.h>

#include <bit>

#include "kernels/linear/quantize_groups.h"

namespace farthing::FARTHING_ISA {

inline void quantize_group(const float* x, int32_t cols, int8_t* codes, float* scale,
                           int32_t* sums) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  const auto load_bits = [](const float* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  };
  __m256i largest = _mm256_setzero_si256();
  for (int32_t k = 0; k < cols; k += 8)
    largest = _mm256_max_epi32(largest, _mm256_and_si256(load_bits(x + k), magnitude));
  __m128i most = _mm_max_epi32(_mm256_castsi256_si128(largest),
                               _mm256_extracti128_si256(largest, 1));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
  const int32_t bits = _mm_cvtsi128_si32(most);
  const float absmax = std::bit_cast<float>(bits);
  const bool usable = bits < 0x7f800000 && !(absmax < 1e-30f);
  *scale = bits < 0x7f800000 && !usable ? 0.0f : absmax / 127.0f;
  const __m256 inverse = _mm256_set1_ps(127.0f / absmax);
  const __m256i keep = _mm256_set1_epi32(usable ? -1 : 0);
  const auto round = [&](const float* p) {
    const __m256 y = _mm256_round_ps(_mm256_mul_ps(_mm256_loadu_ps(p), inverse),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm256_and_si256(_mm256_cvtps_epi32(y), keep);
  };
  for (int32_t k = 0; k < cols; k += kSumRun) {
    const __m256i low = round(x + k), high = round(x + k + 8);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(packed),
                                          _mm256_extracti128_si256(packed, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + k), bytes);
    const __m256i both = _mm256_add_epi32(low, high);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    sums[k / kSumRun] = _mm_cvtsi128_si32(sum);
  }
}

inline void quantize_row(const float* x, int32_t cols, int32_t group, int8_t* codes,
                         float* scales, int32_t* sums) {
  quantize_groups(quantize_group, x, cols, group, codes, scales, sums);
}

}  // namespace farthing::FARTHING_ISA
