// AVX-512 with VNNI: sums of one row block's 16 rows for a tile of tokens.
#pragma once

#include <algorithm>

#include "kernels/linear/avx512_codes.h"

namespace farthing::FARTHING_ISA::sweeps {

inline constexpr int kTileTokens = 8;

// Unpacking hides behind the products, which wait for two pipes only; decoding sub-scales does not.
constexpr int stream_tokens(Scheme s) { return traits_of(s).sub_cols == 0 ? INT32_MAX : 64; }

constexpr Prefetch prefetch_for(Scheme s, int tokens) {  // measured on Zen 4
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
[[gnu::always_inline]] inline __m512i broadcast(const void* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}
[[gnu::always_inline]] inline __m512 broadcast_float(const void* p) {
  return _mm512_castsi512_ps(broadcast(p));
}

// Adds the products of kPairs pairs of quads of a span to the sums of T tokens. x: the first
// token's activations at the span; kStride: bytes to the next token's.
template <int T, int kFirstPair, int kPairs, size_t kStride, class Codes>
[[gnu::always_inline]] inline void add_products(const Codes& codes, const uint8_t* span,
                                                const uint8_t* x, __m512i (&sums)[T]) {
#pragma GCC unroll 4
  for (int i = kFirstPair; i < kFirstPair + kPairs; ++i) {
    __m512i even, odd;
    codes.pair(span, i, even, odd);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      sums[t] = _mm512_dpbusd_epi32(sums[t], even, broadcast(x + t * kStride + 8 * i));
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      sums[t] = _mm512_dpbusd_epi32(sums[t], odd, broadcast(x + t * kStride + 8 * i + 4));
  }
}

// acc = fma(weight_scale * activation_scale, float(isum), acc)
[[gnu::always_inline]] inline __m512 add_scaled(__m512 weight_scale, __m512 activation_scale,
                                                __m512i isum, __m512 acc) {
  const __m512 p = _mm512_mul_ps(weight_scale, activation_scale);
  return _mm512_fmadd_ps(p, _mm512_cvtepi32_ps(isum), acc);
}

constexpr int zero_of(Scheme s) {
  const SchemeTraits t = traits_of(s);
  return t.code_bits == 8 || t.codebook ? 128 : t.zero;  // they are made unsigned
}

// Words of a record: one-level, -zero * asum, which takes off the zero point, or asum where there
// is none; q6_k, the same per 16 columns; q4_k and q5_k, sums of 32 activations as int16, two to a
// word.
constexpr int words(Scheme s) {
  return traits_of(s).sub_cols == 0 ? 1 : traits_of(s).minimum ? 4 : 16;
}
constexpr int code_bytes(Scheme) { return 1; }

template <Scheme S>
[[gnu::always_inline]] inline void prepare_span(const int8_t* codes, uint8_t* to) {
  __builtin_memcpy(to, codes, kSpanCols);
}
template <Scheme S>
[[gnu::always_inline]] inline void prepare_words(const int8_t*, const int32_t* sums, uint8_t* to) {
  constexpr int zero = zero_of(S);
  if constexpr (traits_of(S).sub_cols == 0) {
    int32_t sum = 0;
    for (int i = 0; i < kGroupRuns<S>; ++i) sum += sums[i];
    if constexpr (zero != 0) sum *= -zero;
    __builtin_memcpy(to, &sum, 4);
  } else {
    const __m512i asum = _mm512_loadu_si512(sums);
    if constexpr (traits_of(S).minimum) {
      const __m512i pairs = _mm512_add_epi32(asum, _mm512_srli_epi64(asum, 32));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi64_epi16(pairs));
    } else {
      _mm512_storeu_si512(to, _mm512_mullo_epi32(asum, _mm512_set1_epi32(-zero)));
    }
  }
}

template <Scheme S, int T>
using Record = RecordOf<S, T, code_bytes(S), words(S)>;

// isum = what the sums of activation group g begin with.
template <Scheme S, int T>
[[gnu::always_inline]] inline void start_group(const Record<S, T>& record, size_t g,
                                               __m512i (&isum)[T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t)
    isum[t] = zero_of(S) == 0 ? _mm512_setzero_si512() : broadcast(record.word(g, t));
}

// acc += the finished sums of a step's activation group g, whose weight scales are at `scales`.
template <Scheme S, int T>
[[gnu::always_inline]] inline void add_group(const uint8_t* scales, const Record<S, T>& record,
                                             size_t g, const __m512i (&isum)[T],
                                             __m512 (&acc)[T]) {
  const __m512 scale = load_halves(scales);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const __m512 a_scale = broadcast_float(record.scale(g, t));
    acc[t] = add_scaled(scale, a_scale, isum[t], acc[t]);
    if constexpr (traits_of(S).minimum)
      acc[t] = add_scaled(load_halves(scales + 32), a_scale, broadcast(record.word(g, t)), acc[t]);
  }
}

template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void add_one_level(const Codes& codes, const Weights& w,
                                                 size_t steps, const uint8_t* records,
                                                 __m512 (&acc)[T]) {
  using R = Record<S, T>;
  for (size_t i = 0; i < steps; ++i, records += R::kBytes) {
    const R record{records};
    const uint8_t* unit = unit_at<S>(w, i);
    __m512i isum[T];
    if constexpr (kStepGroups<S> == 2) {
      const uint8_t* span = codes.span(unit, i, 0);
      start_group<S, T>(record, 0, isum);
      add_products<T, 0, 2, R::kStride>(codes, span, record.codes(0), isum);
      add_group<S, T>(scales_at<S>(w, 2 * i), record, 0, isum, acc);
      start_group<S, T>(record, 1, isum);
      add_products<T, 2, 2, R::kStride>(codes, span, record.codes(0), isum);
      add_group<S, T>(scales_at<S>(w, 2 * i + 1), record, 1, isum, acc);
    } else {
      start_group<S, T>(record, 0, isum);
#pragma GCC unroll 1
      for (size_t j = 0; j < kStepSpans<S>; ++j)
        add_products<T, 0, 4, R::kStride>(codes, codes.span(unit, i, j), record.codes(j),
                                         isum);
      add_group<S, T>(scales_at<S>(w, i), record, 0, isum, acc);
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
                                                 size_t steps, const uint8_t* records,
                                                 __m512 (&acc)[T]) {
  using R = Record<S, T>;
  for (size_t s = 0; s < steps; ++s, records += R::kBytes) {
    const R record{records};
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
      add_products<T, 0, 4, R::kStride>(codes, codes.span(unit, s, j), record.codes(j),
                                       part);
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
        msum[t] = _mm512_dpwssd_epi32(msum[t], minimums, broadcast(record.word(0, t, j)));
    }
    const uint8_t* scales = scales_at<S>(w, s);
    const __m512 d = load_halves(scales), dmin = load_halves(scales + 32);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const __m512 a_scale = broadcast_float(record.scale(0, t));
      acc[t] = add_scaled(d, a_scale, isum[t], acc[t]);
      acc[t] = _mm512_fnmadd_ps(_mm512_mul_ps(dmin, a_scale), _mm512_cvtepi32_ps(msum[t]), acc[t]);
    }
  }
}

template <int T, class Codes>
[[gnu::always_inline]] inline void add_q6_k(const Codes& codes, const Weights& w, size_t steps,
                                            const uint8_t* records, __m512 (&acc)[T]) {
  constexpr Scheme S = Scheme::q6_k;
  using R = Record<S, T>;
  for (size_t s = 0; s < steps; ++s, records += R::kBytes) {
    const R record{records};
    const uint8_t* unit = unit_at<S>(w, s);
    __m512i isum[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) isum[t] = _mm512_setzero_si512();
    const auto half_span = [&]<int kHalf>(size_t j, const uint8_t* span,
                                          std::integral_constant<int, kHalf>) {
      __m512i part[T];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) part[t] = broadcast(record.word(0, t, 2 * j + kHalf));
      add_products<T, 2 * kHalf, 2, R::kStride>(codes, span, record.codes(j), part);
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
    for (int t = 0; t < T; ++t)
      acc[t] = add_scaled(d, broadcast_float(record.scale(0, t)), isum[t], acc[t]);
  }
}

// out (T, 16) += sums of T tokens over the steps of a panel (out = if it is the first).
template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void add_panel(const Codes& codes, const Weights& w, size_t steps,
                                             const uint8_t* records, bool first, float* out) {
  __m512 acc[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t)
    acc[t] = first ? _mm512_setzero_ps() : _mm512_load_ps(out + kLanes * t);
  if constexpr (S == Scheme::q6_k)
    add_q6_k<T>(codes, w, steps, records, acc);
  else if constexpr (traits_of(S).sub_cols != 0)
    add_two_level<S, T>(codes, w, steps, records, acc);
  else
    add_one_level<S, T>(codes, w, steps, records, acc);
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
        acc[t] = _mm512_fmadd_ps(w, _mm512_set1_ps(a.values[t * a.stride + k]), acc[t]);
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
