// AVX2: a row block is two halves of 8 rows. Products of unsigned codes and signed activations add
// up in 16 bits as deep as the code's width allows before they are widened:
//   4-bit codes  8 quads: 2 * 15 * 127 * 8 = 30,480
//   5-bit codes  4 quads: 2 * 31 * 127 * 4 = 31,496
//   6-bit codes  2 quads: 2 * 63 * 127 * 2 = 32,004
// 8-bit codes and the values of codebooks do not fit: they and their activations are multiplied as
// 16-bit integers ("wide").
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/linear/avx2_codes.h"

namespace farthing::FARTHING_ISA::sweeps {

inline constexpr int kTileTokens = 4;

// Up to here unpacking a second time costs less than the detour through L1.
consteval int stream_tokens(Scheme s) {
  return traits_of(s).code_bits == 4 && !traits_of(s).codebook ? 16 : 8;
}

// Without it the compiler regroups a chain of additions into a tree, whose leaves it has to spill.
[[gnu::always_inline]] inline void keep_order(__m256i& v) { __asm__("" : "+x"(v)); }

inline __m256i broadcast(const void* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}

consteval Prefetch prefetch_for(Scheme s, int tokens) {  // measured on Zen 4
  switch (traits_of(s).code_bits) {
    case 4: return tokens == 1 ? Prefetch::none : Prefetch::both;
    case 8: return tokens <= 2 ? Prefetch::none : Prefetch::both;
    default: return tokens == 1 ? Prefetch::near : Prefetch::both;
  }
}

// words: one-level, zero * asum, which is to be taken off, or asum where there is no zero point;
// two-level, sums of the activations of the sub-blocks as int16, two to a word.
template <Scheme S>
consteval int meta_words() {
  return traits_of(S).sub_cols == 0 ? 1 : traits_of(S).minimum ? 4 : 8;
}
template <Scheme S>
inline constexpr bool kIsWide = traits_of(S).code_bits == 8 || traits_of(S).codebook;
template <Scheme S, int T>
struct Meta : TileMeta<S, T, meta_words<S>()> {
  // The activations of each quad as 16-bit pairs (0, 2) and (1, 3).
  alignas(64) int16_t wide[kIsWide<S> ? T : 1][kIsWide<S> ? kPanelCols : 16];
};

// Sums of kRuns * kSumRun activations each, eight from number i on.
template <int kRuns>
[[gnu::always_inline]] inline __m256i eight_sums(const int32_t* sums, size_t i) {
  if constexpr (kRuns == 1) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums + i));
  } else {
    const __m256i added = _mm256_hadd_epi32(eight_sums<kRuns / 2>(sums, 2 * i),
                                            eight_sums<kRuns / 2>(sums, 2 * i + 8));
    return _mm256_permute4x64_epi64(added, 0xd8);
  }
}

template <Scheme S>
inline void read_sums(const int32_t* sums, size_t groups, int32_t* words) {
  if constexpr (traits_of(S).sub_cols == 0) {
    constexpr int factor = traits_of(S).zero == 0 ? 1 : traits_of(S).zero;
    constexpr size_t runs = kGroupRuns<S>;
    size_t g = 0;
    for (; g + 8 <= groups; g += 8)
      store(words + g, _mm256_mullo_epi32(eight_sums<runs>(sums, g), _mm256_set1_epi32(factor)));
    for (; g < groups; ++g) {
      int32_t sum = 0;
      for (size_t i = 0; i < runs; ++i) sum += sums[runs * g + i];
      words[g] = sum * factor;
    }
  } else {
    for (size_t g = 0; g < groups; ++g) {
      if constexpr (traits_of(S).minimum) {
        const __m256i asum = eight_sums<2>(sums, 8 * g);
        const __m128i packed = _mm_packs_epi32(_mm256_castsi256_si128(asum),
                                               _mm256_extracti128_si256(asum, 1));
        _mm_store_si128(reinterpret_cast<__m128i*>(words + 4 * g), packed);
      } else {
        const __m256i packed = _mm256_packs_epi32(eight_sums<1>(sums, 16 * g),
                                                  eight_sums<1>(sums, 16 * g + 8));
        store(words + 8 * g, _mm256_permute4x64_epi64(packed, 0xd8));
      }
    }
  }
}

template <Scheme S, int T>
inline void read_meta(const Tokens& a, size_t groups, Meta<S, T>& meta) {
#pragma GCC unroll 1
  for (size_t t = 0; t < T; ++t) {
    const float* scales = a.scales + t * a.scale_stride;
    size_t g = 0;
    for (; g + 8 <= groups; g += 8)
      _mm256_store_ps(meta.scales[t] + g, _mm256_loadu_ps(scales + g));
    for (; g < groups; ++g) meta.scales[t][g] = scales[g];
    read_sums<S>(a.sums + t * a.sum_stride, groups, meta.words[t]);
    if constexpr (kIsWide<S>) {
      const size_t spans = groups * traits_of(S).activation_group / kSpanCols;
      for (size_t i = 0; i < spans; ++i) {
        const int8_t* x = a.codes + t * a.code_stride + kSpanCols * i;
        const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
        const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
        const __m256i odd = _mm256_srai_epi16(v, 8);
        // Pairs of a quad side by side; the order of the quads is that of wide_quad().
        store(meta.wide[t] + 32 * i, _mm256_unpacklo_epi32(even, odd));
        store(meta.wide[t] + 32 * i + 16, _mm256_unpackhi_epi32(even, odd));
      }
    }
  }
}

// Offset in `wide` of quad q of a span: quads 0, 1, 4, 5 come before 2, 3, 6, 7.
consteval int wide_quad(int q) { return 4 * (q % 2 + q / 4 * 2) + (q / 2 % 2) * 16; }

// products = sums over kPairs pairs of quads, 16 bits; the caller knows they cannot overflow.
// x: the first token's activations at the span.
template <int T, int kFirstPair, int kPairs, class Codes>
[[gnu::always_inline]] inline void multiply(const Codes& codes, const uint8_t* span,
                                            const int8_t* x, size_t x_stride,
                                            __m256i (&products)[T][2]) {
#pragma GCC unroll 4
  for (int i = kFirstPair; i < kFirstPair + kPairs; ++i) {
    __m256i w[2][2];  // odd, half
    codes.pair(span, i, 0, w[0][0], w[1][0]);
    codes.pair(span, i, 1, w[0][1], w[1][1]);
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const __m256i b = broadcast(x + t * x_stride + 8 * i + 4 * odd);
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          const __m256i p = _mm256_maddubs_epi16(w[odd][h], b);
          if (i == kFirstPair && odd == 0) {
            products[t][h] = p;
          } else {
            products[t][h] = _mm256_add_epi16(products[t][h], p);
            keep_order(products[t][h]);
          }
        }
      }
    }
  }
}

// sums += (products of one pair of quads) * scale, for codes too wide to add up further.
template <int T, class Codes>
[[gnu::always_inline]] inline void multiply_pair(const Codes& codes, const uint8_t* span, int i,
                                                 const int8_t* x, size_t x_stride,
                                                 const int32_t* scale, __m256i (&sums)[T][2]) {
  __m256i even[2], odd[2];
  codes.pair(span, i, 0, even[0], odd[0]);
  codes.pair(span, i, 1, even[1], odd[1]);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const __m256i first = broadcast(x + t * x_stride + 8 * i);
    const __m256i second = broadcast(x + t * x_stride + 8 * i + 4);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i p = _mm256_add_epi16(_mm256_maddubs_epi16(even[h], first),
                                         _mm256_maddubs_epi16(odd[h], second));
      sums[t][h] = _mm256_add_epi32(sums[t][h], _mm256_madd_epi16(p, load(scale + 8 * h)));
      keep_order(sums[t][h]);
    }
  }
}

// sums += over kQuads quads of a span of signed bytes. x: the first token's 16-bit pairs of the span.
template <int T, int kFirstQuad, int kQuads, class Codes>
[[gnu::always_inline]] inline void add_wide(const Codes& codes, const uint8_t* span,
                                            const int16_t* x, __m256i (&sums)[T][2]) {
  const auto quad = [&]<int kQuad>(std::integral_constant<int, kQuad>) {
    __m256i even[2], odd[2];  // columns 0 and 2, 1 and 3 of each row, by half
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i w = codes.quad(span, kQuad, h);
      even[h] = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8);
      odd[h] = _mm256_srai_epi16(w, 8);
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const int16_t* pairs = x + t * kPanelCols + wide_quad(kQuad);
      const __m256i first = broadcast(pairs), second = broadcast(pairs + 2);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        sums[t][h] = _mm256_add_epi32(sums[t][h], _mm256_madd_epi16(even[h], first));
        keep_order(sums[t][h]);
        sums[t][h] = _mm256_add_epi32(sums[t][h], _mm256_madd_epi16(odd[h], second));
        keep_order(sums[t][h]);
      }
    }
  };
  [&]<int... kLess>(std::integer_sequence<int, kLess...>) {
    (quad(std::integral_constant<int, kFirstQuad + kLess>{}), ...);
  }(std::make_integer_sequence<int, kQuads>{});
}

// sums += (kFresh: =) over kPairs pairs of quads of a span of unsigned codes.
template <Scheme S, int T, int kFirstPair, int kPairs, bool kFresh, class Codes>
[[gnu::always_inline]] inline void add_narrow(const Codes& codes, const uint8_t* span,
                                              const int8_t* x, size_t x_stride,
                                              __m256i (&sums)[T][2]) {
  constexpr int bits = traits_of(S).code_bits;
  constexpr int deep = std::min(kPairs, bits == 4 ? 4 : bits == 5 ? 2 : 1);
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i products[T][2];
  multiply<T, kFirstPair, deep>(codes, span, x, x_stride, products);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < 2; ++h) {
      const __m256i widened = _mm256_madd_epi16(products[t][h], ones);
      sums[t][h] = kFresh ? widened : _mm256_add_epi32(sums[t][h], widened);
    }
  if constexpr (kPairs > deep)
    add_narrow<S, T, kFirstPair + deep, kPairs - deep, false>(codes, span, x, x_stride, sums);
}

// Half kHalf of span number i of a panel, or with kHalf = -1 the whole span: sums of value *
// activation, before the zero point is taken off. kFresh: sums are set, not added to.
template <Scheme S, int T, int kHalf, bool kFresh, class Codes>
[[gnu::always_inline]] inline void add_span(const Codes& codes, const uint8_t* span, size_t i,
                                            const Tokens& a, const Meta<S, T>& meta,
                                            __m256i (&sums)[T][2]) {
  constexpr int first = kHalf == 1 ? 2 : 0, pairs = kHalf < 0 ? 4 : 2;
  if constexpr (kIsWide<S>) {
    if constexpr (kFresh) {
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) sums[t][0] = sums[t][1] = _mm256_setzero_si256();
    }
    add_wide<T, 2 * first, 2 * pairs>(codes, span, meta.wide[0] + kSpanCols * i, sums);
  } else {
    add_narrow<S, T, first, pairs, kFresh>(codes, span, a.codes + kSpanCols * i, a.code_stride,
                                           sums);
  }
}

// fma(weight_scale * activation_scale, float(isum), acc)
[[gnu::always_inline]] inline __m256 add_scaled(__m256 weight_scale, __m256 activation_scale,
                                                __m256i isum, __m256 acc) {
  const __m256 p = _mm256_mul_ps(weight_scale, activation_scale);
  return _mm256_fmadd_ps(p, _mm256_cvtepi32_ps(isum), acc);
}

// acc (T, 16) += the finished sums of activation group g.
template <Scheme S, int T>
[[gnu::always_inline]] inline void add_group(const Weights& w, size_t g, const Meta<S, T>& meta,
                                             __m256i (&isum)[T][2], float* acc) {
  const uint8_t* scales = scales_at<S>(w, g);
  const __m256 scale[2] = {load_halves(scales), load_halves(scales + 16)};
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const __m256 a_scale = _mm256_set1_ps(meta.scales[t][g]);
    const __m256i word = _mm256_set1_epi32(meta.words[t][g]);
    for (int h = 0; h < 2; ++h) {
      float* to = acc + kLanes * t + 8 * h;
      if constexpr (traits_of(S).zero != 0) isum[t][h] = _mm256_sub_epi32(isum[t][h], word);
      __m256 y = add_scaled(scale[h], a_scale, isum[t][h], _mm256_load_ps(to));
      if constexpr (traits_of(S).minimum)
        y = add_scaled(load_halves(scales + 32 + 16 * h), a_scale, word, y);
      _mm256_store_ps(to, y);
    }
  }
}

// acc (T, 16) += sums over the steps of a panel.
template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void add_one_level(const Codes& codes, const Weights& w,
                                                 size_t steps, const Tokens& a,
                                                 const Meta<S, T>& meta, float* acc) {
  for (size_t i = 0; i < steps; ++i) {
    const uint8_t* unit = unit_at<S>(w, i);
    const uint8_t* span = codes.span(unit, i, 0);
    __m256i isum[T][2];
    if constexpr (kStepGroups<S> == 2) {
      add_span<S, T, 0, true>(codes, span, i, a, meta, isum);
      add_group<S, T>(w, 2 * i, meta, isum, acc);
      add_span<S, T, 1, true>(codes, span, i, a, meta, isum);
      add_group<S, T>(w, 2 * i + 1, meta, isum, acc);
    } else {
      constexpr size_t spans = kStepSpans<S>;
      add_span<S, T, -1, true>(codes, span, spans * i, a, meta, isum);
#pragma GCC unroll 1
      for (size_t j = 1; j < spans; ++j)
        add_span<S, T, -1, false>(codes, codes.span(unit, i, j), spans * i + j, a, meta, isum);
      add_group<S, T>(w, i, meta, isum, acc);
    }
  }
}

// isum (in memory) += products * scale
template <int T>
[[gnu::always_inline]] inline void add_widened(const __m256i (&products)[T][2],
                                               const int32_t* scale, __m256i (&isum)[T][2]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < 2; ++h)
      isum[t][h] = _mm256_add_epi32(isum[t][h],
                                    _mm256_madd_epi16(products[t][h], load(scale + 8 * h)));
}

template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void add_two_level(const Codes& codes, const Weights& w,
                                                 size_t groups, const Tokens& a,
                                                 const Meta<S, T>& meta, float* acc) {
  constexpr bool minimum = traits_of(S).minimum;
  constexpr size_t words = meta_words<S>();
  for (size_t s = 0; s < groups; ++s) {
    const uint8_t* unit = unit_at<S>(w, s);
    const SubScales<S>& sub = codes.sub_scales(unit, s);
    __m256i isum[T][2];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) isum[t][0] = isum[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (size_t j = 0; j < 8; ++j) {
      const uint8_t* span = codes.span(unit, s, j);
      const int8_t* x = a.codes + kSuperCols * s + kSpanCols * j;
      __m256i products[T][2];
      if constexpr (S == Scheme::q4_k) {
        multiply<T, 0, 4>(codes, span, x, a.code_stride, products);
        add_widened<T>(products, sub.twice[j], isum);
      } else if constexpr (S == Scheme::q5_k) {
        multiply<T, 0, 2>(codes, span, x, a.code_stride, products);
        add_widened<T>(products, sub.twice[j], isum);
        multiply<T, 2, 2>(codes, span, x, a.code_stride, products);
        add_widened<T>(products, sub.twice[j], isum);
      } else {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)
          multiply_pair<T>(codes, span, i, x, a.code_stride, sub.twice[2 * j + i / 2], isum);
      }
    }
    const uint8_t* scales = scales_at<S>(w, s);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const __m256 a_scale = _mm256_set1_ps(meta.scales[t][s]);
      for (int h = 0; h < 2; ++h) {
        __m256i correction = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (size_t j = 0; j < words; ++j)
          correction = _mm256_add_epi32(
              correction, _mm256_madd_epi16(load(sub.pairs[j] + 8 * h),
                                            _mm256_set1_epi32(meta.words[t][words * s + j])));
        float* to = acc + kLanes * t + 8 * h;
        __m256i sum = isum[t][h];
        if constexpr (!minimum) sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(correction, 5));
        __m256 y = add_scaled(load_halves(scales + 16 * h), a_scale, sum, _mm256_load_ps(to));
        if constexpr (minimum) {
          const __m256 m = _mm256_mul_ps(load_halves(scales + 32 + 16 * h), a_scale);
          y = _mm256_fnmadd_ps(m, _mm256_cvtepi32_ps(correction), y);
        }
        _mm256_store_ps(to, y);
      }
    }
  }
}

// out (T, 16) += sums of T tokens over the steps of a panel (out = if it is the first).
template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void add_panel(const Codes& codes, const Weights& w, size_t steps,
                                             const Tokens& a, const Meta<S, T>& meta, bool first,
                                             float* out) {
  if (first)
    for (int i = 0; i < T * kLanes; i += 8) _mm256_store_ps(out + i, _mm256_setzero_ps());
  if constexpr (traits_of(S).sub_cols == 0)
    add_one_level<S, T>(codes, w, steps, a, meta, out);
  else
    add_two_level<S, T>(codes, w, steps, a, meta, out);
}

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
        const __m256 x = _mm256_set1_ps(a.values[t * a.value_stride + k]);
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

inline void write_row(const float* acc, const float* bias, const float* add, float* out) {
  for (int h = 0; h < kLanes; h += 8) {
    __m256 y = _mm256_load_ps(acc + h);
    if (bias != nullptr) y = _mm256_add_ps(y, _mm256_loadu_ps(bias + h));
    if (add != nullptr) y = _mm256_add_ps(y, _mm256_loadu_ps(add + h));
    _mm256_storeu_ps(out + h, y);
  }
}

}  // namespace farthing::FARTHING_ISA::sweeps
