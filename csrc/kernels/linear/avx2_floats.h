// AVX2: float schemes.
#pragma once

#include <algorithm>

#include "kernels/linear/avx2_codes.h"

namespace farthing::FARTHING_ISA::sweeps {

template <Scheme S>
inline __m256 load_elements(const uint8_t* codes, size_t k, int h) {
  const size_t first = kLanes * k + 8 * static_cast<size_t>(h);
  if constexpr (S == Scheme::f32)
    return _mm256_load_ps(reinterpret_cast<const float*>(codes) + first);
  if constexpr (S == Scheme::f16) return load_halves(codes + 2 * first);
  const __m128i halves = _mm_load_si128(reinterpret_cast<const __m128i*>(codes + 2 * first));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

// out (T, 16) = the runs of all columns, added up in ascending order.
template <Scheme S, int T>
inline void add_floats(const uint8_t* packed, size_t cols, const Tokens& a, float* out) {
  for (size_t begin = 0; begin < cols; begin += kFloatRun) {
    const size_t end = std::min(begin + kFloatRun, cols);
    __m256 acc[T][2];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) acc[t][0] = acc[t][1] = _mm256_setzero_ps();
    for (size_t k = begin; k < end; ++k) {
      const __m256 w[2] = {load_elements<S>(packed, k, 0), load_elements<S>(packed, k, 1)};
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const __m256 x = _mm256_set1_ps(a.values[t * a.stride + k]);
        for (int h = 0; h < 2; ++h) acc[t][h] = _mm256_fmadd_ps(w[h], x, acc[t][h]);
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < 2; ++h) {
        float* to = out + kLanes * t + 8 * h;
        if (begin != 0) acc[t][h] = _mm256_add_ps(_mm256_load_ps(to), acc[t][h]);
        _mm256_store_ps(to, acc[t][h]);
      }
  }
}

}  // namespace farthing::FARTHING_ISA::sweeps
