// Activations to int8 with AVX-512.
#pragma once

#include <immintrin.h>

#include <bit>

#include "kernels/linear/quantize_groups.h"

namespace farthing::FARTHING_ISA {

inline void quantize_group(const float* x, int32_t cols, int8_t* codes, float* scale,
                           int32_t* sums) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i largest = _mm512_setzero_si512();
  for (int32_t k = 0; k < cols; k += 16)
    largest =
        _mm512_max_epi32(largest, _mm512_and_si512(_mm512_loadu_si512(x + k), magnitude));
  const int32_t bits = _mm512_reduce_max_epi32(largest);
  const float absmax = std::bit_cast<float>(bits);
  const bool usable = bits < 0x7f800000 && !(absmax < 1e-30f);
  *scale = bits < 0x7f800000 && !usable ? 0.0f : absmax / 127.0f;
  const __m512 inverse = _mm512_set1_ps(127.0f / absmax);
  const __mmask16 keep = usable ? 0xffff : 0;
  for (int32_t k = 0; k < cols; k += 16) {
    const __m512i code = _mm512_maskz_cvt_roundps_epi32(
        keep, _mm512_mul_ps(_mm512_loadu_ps(x + k), inverse),
        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + k), _mm512_cvtepi32_epi8(code));
    sums[k / kSumRun] = _mm512_reduce_add_epi32(code);
  }
}

inline void quantize_row(const float* x, int32_t cols, int32_t group, int8_t* codes,
                         float* scales, int32_t* sums) {
  quantize_groups(quantize_group, x, cols, group, codes, scales, sums);
}

}  // namespace farthing::FARTHING_ISA
