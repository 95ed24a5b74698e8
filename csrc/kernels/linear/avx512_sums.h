// AVX-512 with VNNI: sums of one row block's 16 rows for a tile of tokens.
#pragma once

#include <algorithm>

#include "kernels/linear/avx512_codes.h"

namespace farthing::FARTHING_ISA::sweeps {

inline constexpr int kTileTokens = 8;

// Two tiles and more read a row block's codes packed: unpacking hides behind the products.
consteval int stream_tokens(Scheme s) { return traits_of(s).sub_cols == 0 ? 32 : 64; }

consteval Prefetch prefetch_for(Scheme s, int tokens) {  // measured on Zen 4
  switch (traits_of(s).code_bits) {
    case 4: return tokens == 1 ? Prefetch::none : Prefetch::both;
    case 8: return tokens <= 4 ? Prefetch::none : Prefetch::both;
    default: return tokens <= 2 ? Prefetch::near : Prefetch::both;
  }
}

inline __m512i load_u8(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
}
inline __m512i load_s8(const uint8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
}
// Four consecutive activations for every row.
inline __m512i broadcast_quad(const int8_t* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}

// Adds the products of kPairs pairs of quads of a span to the sums of T tokens. x: the first
// token's activations at the span.
template <int T, int kFirstPair, int kPairs, class Codes>
[[gnu::always_inline]] inline void add_products(const Codes& codes, const uint8_t* span,
                                                const int8_t* x, size_t x_stride,
                                                __m512i (&sums)[T]) {
#pragma GCC unroll 4
  for (int i = kFirstPair; i < kFirstPair + kPairs; ++i) {
    __m512i even, odd;
    codes.pair(span, i, even, odd);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      sums[t] = _mm512_dpbusd_epi32(sums[t], even, broadcast_quad(x + t * x_stride + 8 * i));
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      sums[t] = _mm512_dpbusd_epi32(sums[t], odd, broadcast_quad(x + t * x_stride + 8 * i + 4));
  }
}

// acc = fma(weight_scale * activation_scale, float(isum), acc)
[[gnu::always_inline]] inline __m512 add_scaled(__m512 weight_scale, float activation_scale,
                                                __m512i isum, __m512 acc) {
  const __m512 p = _mm512_mul_ps(weight_scale, _mm512_set1_ps(activation_scale));
  return _mm512_fmadd_ps(p, _mm512_cvtepi32_ps(isum), acc);
}

// Mask of the lanes from `first` on that lie below `count`.
inline __mmask16 lanes_below(size_t first, size_t count) {
  if (count >= first + 16) return 0xffff;
  return count <= first ? __mmask16{0} : static_cast<__mmask16>((1u << (count - first)) - 1);
}

consteval int zero_of(Scheme s) {
  const SchemeTraits t = traits_of(s);
  return t.code_bits == 8 || t.codebook ? 128 : t.zero;  // they are made unsigned
}

// words: one-level, -zero * asum, which takes off the zero point, or asum where there is none;
// q6_k, the same per 16 columns; q4_k and q5_k, sums of 32 activations as int16, two to a word.
template <Scheme S>
constexpr int meta_words() {
  return traits_of(S).sub_cols == 0 ? 1 : traits_of(S).minimum ? 4 : 16;
}
template <Scheme S, int T>
using Meta = TileMeta<S, T, meta_words<S>()>;

// Sums of kRuns * kSumRun activations each, 16 from number i on; those from `count` on are zero.
template <int kRuns>
[[gnu::always_inline]] inline __m512i sixteen_sums(const int32_t* sums, size_t i, size_t count) {
  if constexpr (kRuns == 1) {
    return _mm512_maskz_loadu_epi32(lanes_below(i, count), sums + i);
  } else {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i first = sixteen_sums<kRuns / 2>(sums, 2 * i, 2 * count);
    const __m512i second = sixteen_sums<kRuns / 2>(sums, 2 * i + 16, 2 * count);
    return _mm512_add_epi32(_mm512_permutex2var_epi32(first, even, second),
                            _mm512_permutex2var_epi32(first, odd, second));
  }
}

template <Scheme S, int T>
[[gnu::always_inline]] inline void read_meta(const Tokens& a, size_t groups, Meta<S, T>& meta) {
  constexpr int zero = zero_of(S);
  const __m512i minus_zero = _mm512_set1_epi32(-zero);
#pragma GCC unroll 1
  for (size_t t = 0; t < T; ++t) {
    const float* scales = a.scales + t * a.scale_stride;
    const int32_t* sums = a.sums + t * a.sum_stride;
    if constexpr (traits_of(S).sub_cols == 0) {
      constexpr size_t most = Meta<S, T>::kGroups;
      for (size_t g = 0; g < most; g += 16) {
        const __mmask16 room = lanes_below(g, most);
        _mm512_mask_storeu_ps(meta.scales[t] + g, room,
                             _mm512_maskz_loadu_ps(lanes_below(g, groups), scales + g));
        const __m512i asum = sixteen_sums<kGroupRuns<S>>(sums, g, groups);
        _mm512_mask_storeu_epi32(meta.words[t] + g, room,
                                zero == 0 ? asum : _mm512_mullo_epi32(asum, minus_zero));
      }
    } else {
      for (size_t g = 0; g < groups; ++g) {
        meta.scales[t][g] = scales[g];
        const __m512i asum = _mm512_loadu_si512(sums + 16 * g);
        if constexpr (traits_of(S).minimum) {
          const __m512i pairs = _mm512_add_epi32(asum, _mm512_srli_epi64(asum, 32));
          _mm_store_si128(reinterpret_cast<__m128i*>(meta.words[t] + 4 * g),
                          _mm512_cvtepi64_epi16(pairs));
        } else {
          _mm512_store_si512(meta.words[t] + 16 * g, _mm512_mullo_epi32(asum, minus_zero));
        }
      }
    }
  }
}

// isum = what the sums of activation group g begin with.
template <Scheme S, int T>
[[gnu::always_inline]] inline void start_group(size_t g, const Meta<S, T>& meta,
                                               __m512i (&isum)[T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t)
    isum[t] = zero_of(S) == 0 ? _mm512_setzero_si512() : _mm512_set1_epi32(meta.words[t][g]);
}

// acc += the finished sums of activation group g.
template <Scheme S, int T>
[[gnu::always_inline]] inline void add_group(const Weights& w, size_t g, const Meta<S, T>& meta,
                                             const __m512i (&isum)[T], __m512 (&acc)[T]) {
  const uint8_t* scales = scales_at<S>(w, g);
  const __m512 scale = load_halves(scales);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    acc[t] = add_scaled(scale, meta.scales[t][g], isum[t], acc[t]);
    if constexpr (traits_of(S).minimum)
      acc[t] = add_scaled(load_halves(scales + 32), meta.scales[t][g],
                          _mm512_set1_epi32(meta.words[t][g]), acc[t]);
  }
}

template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void add_one_level(const Codes& codes, const Weights& w,
                                                 size_t steps, const Tokens& a,
                                                 const Meta<S, T>& meta, __m512 (&acc)[T]) {
  for (size_t i = 0; i < steps; ++i) {
    const uint8_t* unit = unit_at<S>(w, i);
    const int8_t* x = a.codes + kStepCols<S> * i;
    __m512i isum[T];
    if constexpr (kStepGroups<S> == 2) {
      const uint8_t* span = codes.span(unit, i, 0);
      start_group<S, T>(2 * i, meta, isum);
      add_products<T, 0, 2>(codes, span, x, a.code_stride, isum);
      add_group<S, T>(w, 2 * i, meta, isum, acc);
      start_group<S, T>(2 * i + 1, meta, isum);
      add_products<T, 2, 2>(codes, span, x, a.code_stride, isum);
      add_group<S, T>(w, 2 * i + 1, meta, isum, acc);
    } else {
      start_group<S, T>(i, meta, isum);
#pragma GCC unroll 1
      for (size_t j = 0; j < kStepSpans<S>; ++j)
        add_products<T, 0, 4>(codes, codes.span(unit, i, j), x + kSpanCols * j, a.code_stride,
                              isum);
      add_group<S, T>(w, i, meta, isum, acc);
    }
  }
}

// Sub-scales and sub-minimums of a super-block of q4_k or q5_k, one byte each.
struct SubScales {
  alignas(64) uint8_t scales[8][kLanes];
  alignas(64) uint8_t minimums[8][kLanes];

  explicit SubScales(const uint8_t* sub) {
    const __m512i nibble = _mm512_set1_epi8(15), upper = _mm512_set1_epi8(0x30);
    const __m512i first = load(sub), second = load(sub + 64), high = load(sub + 128);
    const auto join = [&](__m512i low, __m512i shifted) {
      return _mm512_or_si512(_mm512_and_si512(low, nibble), _mm512_and_si512(shifted, upper));
    };
    _mm512_store_si512(scales[0], join(first, _mm512_slli_epi16(high, 4)));
    _mm512_store_si512(scales[4], join(second, high));
    _mm512_store_si512(minimums[0],
                       join(_mm512_srli_epi16(first, 4), _mm512_slli_epi16(high, 2)));
    _mm512_store_si512(minimums[4],
                       join(_mm512_srli_epi16(second, 4), _mm512_srli_epi16(high, 2)));
  }
};

template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void add_two_level(const Codes& codes, const Weights& w,
                                                 size_t groups, const Tokens& a,
                                                 const Meta<S, T>& meta, __m512 (&acc)[T]) {
  for (size_t s = 0; s < groups; ++s) {
    const uint8_t* unit = unit_at<S>(w, s);
    const SubScales sub_scales(unit);
    __m512i isum[T], msum[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) isum[t] = msum[t] = _mm512_setzero_si512();
#pragma GCC unroll 1
    for (size_t j = 0; j < 8; ++j) {
      __m512i part[T];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) part[t] = _mm512_setzero_si512();
      add_products<T, 0, 4>(codes, codes.span(unit, s, j),
                            a.codes + kSuperCols * s + kSpanCols * j, a.code_stride, part);
      const __m512i scale = load_u8(sub_scales.scales[j]);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t)
        isum[t] = _mm512_add_epi32(isum[t], _mm512_mullo_epi32(part[t], scale));
    }
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; ++j) {
      const __m512i minimums =
          _mm512_or_si512(load_u8(sub_scales.minimums[2 * j]),
                          _mm512_slli_epi32(load_u8(sub_scales.minimums[2 * j + 1]), 16));
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t)
        msum[t] = _mm512_dpwssd_epi32(msum[t], minimums,
                                      _mm512_set1_epi32(meta.words[t][4 * s + j]));
    }
    const uint8_t* scales = scales_at<S>(w, s);
    const __m512 d = load_halves(scales), dmin = load_halves(scales + 32);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      acc[t] = add_scaled(d, meta.scales[t][s], isum[t], acc[t]);
      const __m512 m = _mm512_mul_ps(dmin, _mm512_set1_ps(meta.scales[t][s]));
      acc[t] = _mm512_fnmadd_ps(m, _mm512_cvtepi32_ps(msum[t]), acc[t]);
    }
  }
}

template <int T, class Codes>
[[gnu::always_inline]] inline void add_q6_k(const Codes& codes, const Weights& w,
                                            size_t groups, const Tokens& a,
                                            const Meta<Scheme::q6_k, T>& meta, __m512 (&acc)[T]) {
  constexpr Scheme S = Scheme::q6_k;
  for (size_t s = 0; s < groups; ++s) {
    const uint8_t* unit = unit_at<S>(w, s);
    __m512i isum[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) isum[t] = _mm512_setzero_si512();
    const auto half_span = [&]<int kHalf>(size_t j, const uint8_t* span,
                                          std::integral_constant<int, kHalf>) {
      __m512i part[T];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t)
        part[t] = _mm512_set1_epi32(meta.words[t][16 * s + 2 * j + kHalf]);
      add_products<T, 2 * kHalf, 2>(codes, span, a.codes + kSuperCols * s + kSpanCols * j,
                                    a.code_stride, part);
      const __m512i scale = load_s8(unit + kLanes * (2 * j + kHalf));
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t)
        isum[t] = _mm512_add_epi32(isum[t], _mm512_mullo_epi32(part[t], scale));
    };
#pragma GCC unroll 1
    for (size_t j = 0; j < 8; ++j) {
      const uint8_t* span = codes.span(unit, s, j);
      half_span(j, span, std::integral_constant<int, 0>{});
      half_span(j, span, std::integral_constant<int, 1>{});
    }
    const __m512 d = load_halves(scales_at<S>(w, s));
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) acc[t] = add_scaled(d, meta.scales[t][s], isum[t], acc[t]);
  }
}

// out (T, 16) += sums of T tokens over the steps of a panel (out = if it is the first).
template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void add_panel(const Codes& codes, const Weights& w, size_t steps,
                                             const Tokens& a, const Meta<S, T>& meta, bool first,
                                             float* out) {
  __m512 acc[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t)
    acc[t] = first ? _mm512_setzero_ps() : _mm512_load_ps(out + kLanes * t);
  if constexpr (S == Scheme::q6_k)
    add_q6_k<T>(codes, w, steps, a, meta, acc);
  else if constexpr (traits_of(S).sub_cols != 0)
    add_two_level<S, T>(codes, w, steps, a, meta, acc);
  else
    add_one_level<S, T>(codes, w, steps, a, meta, acc);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) _mm512_store_ps(out + kLanes * t, acc[t]);
}

template <Scheme S>
inline __m512 load_elements(const uint8_t* codes, size_t k) {
  if constexpr (S == Scheme::f32) return _mm512_load_ps(codes + 64 * k);
  const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes + 32 * k));
  if constexpr (S == Scheme::f16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// out (T, 16) = the runs of all columns, added up in ascending order.
template <Scheme S, int T>
inline void add_floats(const uint8_t* packed, size_t cols, const Tokens& a, float* out) {
  __m512 total[T];
  for (size_t begin = 0; begin < cols; begin += kFloatRun) {
    const size_t end = std::min(begin + kFloatRun, cols);
    __m512 acc[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) acc[t] = _mm512_setzero_ps();
    for (size_t k = begin; k < end; ++k) {
      const __m512 w = load_elements<S>(packed, k);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t)
        acc[t] = _mm512_fmadd_ps(w, _mm512_set1_ps(a.values[t * a.value_stride + k]), acc[t]);
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) total[t] = begin == 0 ? acc[t] : _mm512_add_ps(total[t], acc[t]);
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) _mm512_store_ps(out + kLanes * t, total[t]);
}

inline void write_row(const float* acc, const float* bias, const float* add, float* out) {
  __m512 y = _mm512_load_ps(acc);
  if (bias != nullptr) y = _mm512_add_ps(y, _mm512_loadu_ps(bias));
  if (add != nullptr) y = _mm512_add_ps(y, _mm512_loadu_ps(add));
  _mm512_storeu_ps(out, y);
}

}  // namespace farthing::FARTHING_ISA::sweeps
