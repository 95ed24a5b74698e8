// AVX2: what the records of activations hold, and how far products are added up in 16 bits.
//
// Products of unsigned codes and signed activations, in pairs, stay below 2^15 for sums over
//   4-bit codes  8 quads: 2 * 15 * 127 * 8 = 30,480
//   5-bit codes  4 quads: 2 * 31 * 127 * 4 = 31,496
//   6-bit codes  2 quads: 2 * 63 * 127 * 2 = 32,004
// and, where codes have a zero point z, for twice as many: 16-bit sums wrap around, so only what
// they end as has to fit. Begun with -z times the sum of their activations they end as sums of
// (code - z) * a, at most z * 127 each: 8 * 127 * 2 * 16 = 16 * 127 * 2 * 8 = 32 * 127 * 2 * 4 =
// 32,512. That takes the zero point off as well. A product pair alone must not saturate: at most 2
// * 63 * 127.
//
// 8-bit codes and the values of codebooks do not fit: they and their activations are multiplied as
// 16-bit integers ("wide").
#pragma once

#include <algorithm>

#include "kernels/linear/avx2_codes.h"

namespace farthing::FARTHING_ISA::sweeps {

constexpr bool is_wide(Scheme s) {
  return traits_of(s).code_bits == 8 || traits_of(s).codebook;
}
// Columns of a run: those whose products are added up in 16 bits.
constexpr int run_cols(Scheme s) {
  const SchemeTraits t = traits_of(s);
  const int deep = (t.code_bits == 4 ? 32 : t.code_bits == 5 ? 16 : 8) * (t.zero != 0 ? 2 : 1);
  return std::min(deep, t.sub_cols != 0 ? t.sub_cols : t.activation_group);
}
template <Scheme S>
inline constexpr bool kIsWide = is_wide(S);
template <Scheme S>
inline constexpr bool kIsCentred = traits_of(S).zero != 0;
template <Scheme S>
inline constexpr int kRunCols = run_cols(S);
template <Scheme S>
inline constexpr int kRuns = traits_of(S).activation_group / kRunCols<S>;  // of a group

// Words of a record: where codes have a zero point, for each run what its 16-bit sums begin with:
// -zero times the sum of the activations of columns 0 and 1, and of 2 and 3, of its quads. Where
// they have a minimum, the sum of the activations; in two-level schemes the sums of the sub-blocks,
// as int16, two to a word.
constexpr int words(Scheme s) {
  const SchemeTraits t = traits_of(s);
  if (is_wide(s)) return 0;
  if (t.zero == 0) return t.sub_cols == 0 ? 1 : 4;
  return t.activation_group / run_cols(s);
}
constexpr int code_bytes(Scheme s) { return is_wide(s) ? 2 : 1; }

template <Scheme S>
[[gnu::always_inline]] inline void prepare_span(const int8_t* codes, uint8_t* to) {
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  __m256i* at = reinterpret_cast<__m256i*>(to);
  if constexpr (kIsWide<S>) {
    // The quads' 16-bit pairs (0, 2) and (1, 3) side by side, in the order of wide_quad().
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
    const __m256i odd = _mm256_srai_epi16(v, 8);
    _mm256_storeu_si256(at, _mm256_unpacklo_epi32(even, odd));
    _mm256_storeu_si256(at + 1, _mm256_unpackhi_epi32(even, odd));
  } else {
    _mm256_storeu_si256(at, v);
  }
}
// Offset, in 16-bit activations, of quad q of a span: quads 0, 1, 4, 5 come before 2, 3, 6, 7.
constexpr int wide_quad(int q) { return 4 * (q % 2 + q / 4 * 2) + (q / 2 % 2) * 16; }

inline __m128i load_codes(const int8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

template <Scheme S>
[[gnu::always_inline]] inline void prepare_words(const int8_t* codes, const int32_t* sums,
                                                 uint8_t* to) {
  if constexpr (kIsCentred<S>) {
    const __m128i zero = _mm_set1_epi8(static_cast<char>(traits_of(S).zero));
#pragma GCC unroll 16
    for (int run = 0; run < kRuns<S>; ++run, codes += kRunCols<S>) {
      __m128i pairs = _mm_setzero_si128();
#pragma GCC unroll 4
      for (int k = 0; k < kRunCols<S>; k += 16)
        pairs = _mm_sub_epi16(pairs, _mm_maddubs_epi16(zero, load_codes(codes + k)));
      pairs = _mm_add_epi16(pairs, _mm_shuffle_epi32(pairs, 0x4e));
      pairs = _mm_add_epi16(pairs, _mm_shuffle_epi32(pairs, 0xb1));
      const int32_t word = _mm_cvtsi128_si32(pairs);
      __builtin_memcpy(to + 4 * run, &word, 4);
    }
  } else if constexpr (traits_of(S).sub_cols != 0) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums + 8));
    const __m256i asum = _mm256_permute4x64_epi64(_mm256_hadd_epi32(first, second), 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm_packs_epi32(_mm256_castsi256_si128(asum),
                                     _mm256_extracti128_si256(asum, 1)));
  } else if constexpr (traits_of(S).minimum) {
    int32_t sum = 0;
    for (int i = 0; i < kGroupRuns<S>; ++i) sum += sums[i];
    __builtin_memcpy(to, &sum, 4);
  }
}

template <Scheme S, int T>
using Record = RecordOf<S, T, code_bytes(S), words(S)>;

}  // namespace farthing::FARTHING_ISA::sweeps
