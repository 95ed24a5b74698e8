// AVX2: sums of one row block, two halves of 8 rows, for a tile of tokens.
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/linear/avx2_floats.h"
#include "kernels/linear/avx2_records.h"

namespace farthing::FARTHING_ISA::sweeps {

inline constexpr int kTileTokens = 4;

// Up to two or three tiles unpacking again costs less than the detour through L1; 8-bit codes are
// only widened, which costs the same either way.
constexpr int stream_tokens(Scheme s) {
  const SchemeTraits t = traits_of(s);
  if (t.code_bits == 8) return INT32_MAX;
  return (t.code_bits == 4 && !t.codebook && t.sub_cols == 0 ? 3 : 2) * kTileTokens;
}

// What is to stay in memory: 16 registers do not hold accumulators and a tile's sums, and a
// compiler that tries spills both.
[[gnu::always_inline]] inline void stay(float* p) {
  __asm__("" : "+m"(*reinterpret_cast<float(*)[8]>(p)));
}
[[gnu::always_inline]] inline void stay(__m256i& v) { __asm__("" : "+m"(v)); }

struct [[gnu::may_alias]] Quad {  // four activations
  uint8_t bytes[4];
};
[[gnu::always_inline]] inline __m256i broadcast(const void* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
[[gnu::always_inline]] inline __m256 broadcast_float(const void* p) {
  return _mm256_castsi256_ps(broadcast(p));
}

constexpr Prefetch prefetch_for(Scheme s, int tokens) {  // measured on Zen 4
  switch (traits_of(s).code_bits) {
    case 4: return tokens == 1 ? Prefetch::none : Prefetch::both;
    case 8: return tokens <= 2 ? Prefetch::none : Prefetch::both;
    default: return tokens == 1 ? Prefetch::near : Prefetch::both;
  }
}

// One token's or two tokens' products of a quad, added up in 16 bits. Written out because compilers
// hoist the broadcasts and products of a tile and then spill them, and because the order counts:
// four products are under way before the first is added, for a product takes three cycles.
[[gnu::always_inline]] inline void multiply_one(const __m256i (&w)[2], const uint8_t* x,
                                                __m256i (&sums)[2]) {
  __m256i b, p;
  __asm__ volatile(
      "vpbroadcastd %[x], %[b]\n\t"
      "vpmaddubsw %[b], %[w0], %[p]\n\t"
      "vpmaddubsw %[b], %[w1], %[b]\n\t"
      "vpaddw %[p], %[s0], %[s0]\n\t"
      "vpaddw %[b], %[s1], %[s1]"
      : [s0] "+x"(sums[0]), [s1] "+x"(sums[1]), [b] "=&x"(b), [p] "=&x"(p)
      : [w0] "x"(w[0]), [w1] "x"(w[1]), [x] "m"(*reinterpret_cast<const Quad*>(x)));
}
[[gnu::always_inline]] inline void multiply_two(const __m256i (&w)[2], const uint8_t* x,
                                                const uint8_t* y, __m256i (&x_sums)[2],
                                                __m256i (&y_sums)[2]) {
  __m256i b, c, p, q;
  __asm__ volatile(
      "vpbroadcastd %[x], %[b]\n\t"
      "vpbroadcastd %[y], %[c]\n\t"
      "vpmaddubsw %[b], %[w0], %[p]\n\t"
      "vpmaddubsw %[b], %[w1], %[b]\n\t"
      "vpmaddubsw %[c], %[w0], %[q]\n\t"
      "vpmaddubsw %[c], %[w1], %[c]\n\t"
      "vpaddw %[p], %[s0], %[s0]\n\t"
      "vpaddw %[b], %[s1], %[s1]\n\t"
      "vpaddw %[q], %[s2], %[s2]\n\t"
      "vpaddw %[c], %[s3], %[s3]"
      : [s0] "+x"(x_sums[0]), [s1] "+x"(x_sums[1]), [s2] "+x"(y_sums[0]),
        [s3] "+x"(y_sums[1]), [b] "=&x"(b), [c] "=&x"(c), [p] "=&x"(p), [q] "=&x"(q)
      : [w0] "x"(w[0]), [w1] "x"(w[1]), [x] "m"(*reinterpret_cast<const Quad*>(x)),
        [y] "m"(*reinterpret_cast<const Quad*>(y)));
}

// products += (kFresh: =) over kQuads quads of a span, in 16 bits. x: the first token's activations
// at the span; kStride: bytes to the next token's.
template <int T, int kFirst, int kQuads, bool kFresh, size_t kStride, class Codes>
[[gnu::always_inline]] inline void multiply(const Codes& codes, const uint8_t* span,
                                            const uint8_t* x, __m256i (&products)[T][2]) {
#pragma GCC unroll 8
  for (int q = kFirst; q < kFirst + kQuads; ++q) {
    const __m256i w[2] = {codes.quad(span, q, 0), codes.quad(span, q, 1)};
    const uint8_t* at = x + 4 * q;
    if (kFresh && q == kFirst) {
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t)
        for (int h = 0; h < 2; ++h)
          products[t][h] = _mm256_maddubs_epi16(w[h], broadcast(at + t * kStride));
      continue;
    }
#pragma GCC unroll 4
    for (int t = 0; t + 1 < T; t += 2)
      multiply_two(w, at + t * kStride, at + (t + 1) * kStride, products[t], products[t + 1]);
    if constexpr (T % 2 != 0) multiply_one(w, at + (T - 1) * kStride, products[T - 1]);
  }
}

// One token's products of a quad of signed bytes. even, odd: columns 0 and 2, 1 and 3 of each row,
// by half; x: the token's 16-bit pairs of the quad.
[[gnu::always_inline]] inline void multiply_wide(const __m256i (&even)[2], const __m256i (&odd)[2],
                                                 const uint8_t* x, __m256i (&sums)[2]) {
  __m256i b, c, p, q;
  __asm__ volatile(
      "vpbroadcastd %[x], %[b]\n\t"
      "vpbroadcastd %[y], %[c]\n\t"
      "vpmaddwd %[b], %[e0], %[p]\n\t"
      "vpmaddwd %[b], %[e1], %[b]\n\t"
      "vpmaddwd %[c], %[o0], %[q]\n\t"
      "vpmaddwd %[c], %[o1], %[c]\n\t"
      "vpaddd %[p], %[s0], %[s0]\n\t"
      "vpaddd %[b], %[s1], %[s1]\n\t"
      "vpaddd %[q], %[s0], %[s0]\n\t"
      "vpaddd %[c], %[s1], %[s1]"
      : [s0] "+x"(sums[0]), [s1] "+x"(sums[1]), [b] "=&x"(b), [c] "=&x"(c), [p] "=&x"(p),
        [q] "=&x"(q)
      : [e0] "x"(even[0]), [e1] "x"(even[1]), [o0] "x"(odd[0]), [o1] "x"(odd[1]),
        [x] "m"(*reinterpret_cast<const Quad*>(x)),
        [y] "m"(*reinterpret_cast<const Quad*>(x + 4)));
}

// sums += over kQuads quads of a span of signed bytes. x: the first token's 16-bit pairs of the
// span.
template <int T, int kFirst, int kQuads, size_t kStride, class Codes>
[[gnu::always_inline]] inline void add_wide(const Codes& codes, const uint8_t* span,
                                            const uint8_t* x, __m256i (&sums)[T][2]) {
  const auto quad = [&]<int kQuad>(std::integral_constant<int, kQuad>) {
    __m256i even[2], odd[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i w = codes.quad(span, kQuad, h);
      even[h] = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8);
      odd[h] = _mm256_srai_epi16(w, 8);
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      multiply_wide(even, odd, x + t * kStride + 2 * wide_quad(kQuad), sums[t]);
  };
  [&]<int... kLess>(std::integer_sequence<int, kLess...>) {
    (quad(std::integral_constant<int, kFirst + kLess>{}), ...);
  }(std::make_integer_sequence<int, kQuads>{});
}

// fma(weight_scale * activation_scale, float(isum), acc)
[[gnu::always_inline]] inline __m256 add_scaled(__m256 weight_scale, __m256 activation_scale,
                                                __m256i isum, __m256 acc) {
  const __m256 p = _mm256_mul_ps(weight_scale, activation_scale);
  return _mm256_fmadd_ps(p, _mm256_cvtepi32_ps(isum), acc);
}

// acc (T, 16) += the sums of a step's activation group g, whose weight scales are at `scales`.
// kWidened: sums are 32 bits, else 16 bits to be added up in pairs.
template <Scheme S, int T, bool kWidened>
[[gnu::always_inline]] inline void add_group(const uint8_t* scales, const Record<S, T>& record,
                                             size_t g, __m256i (&sums)[T][2], float* acc) {
  const __m256 s0 = load_halves(scales), s1 = load_halves(scales + 16);
  using Eight = float[8];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    if constexpr (!kWidened) {
      for (__m256i& sum : sums[t]) sum = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
    }
    Eight* to = reinterpret_cast<Eight*>(acc + kLanes * t);
    const Quad& a_scale = *reinterpret_cast<const Quad*>(record.scale(g, t));
    __m256 f, p;
    __asm__ volatile(  // sums = fma(s * a_scale, float(sums), acc)
        "vbroadcastss %[a], %[f]\n\t"
        "vmulps %[s0], %[f], %[p]\n\t"
        "vmulps %[s1], %[f], %[f]\n\t"
        "vcvtdq2ps %[v0], %[v0]\n\t"
        "vcvtdq2ps %[v1], %[v1]\n\t"
        "vfmadd213ps %[to0], %[p], %[v0]\n\t"
        "vfmadd213ps %[to1], %[f], %[v1]\n\t"
        "vmovaps %[v0], %[to0]\n\t"
        "vmovaps %[v1], %[to1]"
        : [to0] "+m"(to[0]), [to1] "+m"(to[1]), [v0] "+x"(sums[t][0]), [v1] "+x"(sums[t][1]),
          [f] "=&x"(f), [p] "=&x"(p)
        : [a] "m"(a_scale), [s0] "x"(s0), [s1] "x"(s1));
  }
  if constexpr (traits_of(S).minimum) {
    const __m256 minimum[2] = {load_halves(scales + 32), load_halves(scales + 48)};
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < 2; ++h) {
        float* to = acc + kLanes * t + 8 * h;
        _mm256_store_ps(to, add_scaled(minimum[h], broadcast_float(record.scale(g, t)),
                                       broadcast(record.word(g, t)), _mm256_load_ps(to)));
        stay(to);
      }
  }
}

// products = run kRun of an activation group, which begins with quad kFirst of its first span.
// Before the last of several runs the sums of 32 bits wait in `sums`, in memory; the last one is
// added to them.
template <Scheme S, int T, int kFirst, int kRun, class Codes>
[[gnu::always_inline]] inline void add_run(const Codes& codes, const uint8_t* unit, size_t step,
                                           const Record<S, T>& record, size_t g,
                                           __m256i (&sums)[T][2], __m256i (&products)[T][2]) {
  constexpr int col = kRun * kRunCols<S>;
  constexpr int quads = std::min(kRunCols<S>, kSpanCols) / 4;
  constexpr size_t span = col / kSpanCols, spans = std::max(1, kRunCols<S> / kSpanCols);
  if constexpr (kIsCentred<S>) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      products[t][0] = products[t][1] = broadcast(record.word(g, t, kRun));
  }
#pragma GCC unroll 1
  for (size_t j = span; j < span + spans; ++j)
    multiply<T, kFirst + col % kSpanCols / 4, quads, !kIsCentred<S>, Record<S, T>::kStride>(
        codes, codes.span(unit, step, j), record.codes(j), products);
  if constexpr (kRuns<S> > 1) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < 2; ++h) {
        __m256i sum = _mm256_madd_epi16(products[t][h], _mm256_set1_epi16(1));
        if constexpr (kRun != 0) sum = _mm256_add_epi32(sum, sums[t][h]);
        if constexpr (kRun + 1 == kRuns<S>) {
          products[t][h] = sum;
        } else {
          sums[t][h] = sum;
          stay(sums[t][h]);
        }
      }
    if constexpr (kRun + 1 < kRuns<S>)
      add_run<S, T, kFirst, kRun + 1>(codes, unit, step, record, g, sums, products);
  }
}

// acc += activation group g of a step, which begins with quad kFirst of its first span.
template <Scheme S, int T, int kFirst, class Codes>
[[gnu::always_inline]] inline void sum_group(const Codes& codes, const Weights& w, size_t step,
                                             const Record<S, T>& record, size_t g, float* acc) {
  const uint8_t* unit = unit_at<S>(w, step);
  const uint8_t* scales = scales_at<S>(w, kStepGroups<S> * step + g);
  __m256i sums[T][2];
  if constexpr (kIsWide<S>) {
    constexpr int quads = std::min(traits_of(S).activation_group, kSpanCols) / 4;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums[t][0] = sums[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (size_t j = 0; j < kStepSpans<S>; ++j)
      add_wide<T, kFirst, quads, Record<S, T>::kStride>(codes, codes.span(unit, step, j),
                                                        record.codes(j), sums);
    add_group<S, T, true>(scales, record, g, sums, acc);
  } else {
    __m256i products[T][2];
    add_run<S, T, kFirst, 0>(codes, unit, step, record, g, sums, products);
    add_group<S, T, (kRuns<S> > 1)>(scales, record, g, products, acc);
  }
}

// acc (T, 16) += sums over the steps of a panel.
template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void add_one_level(const Codes& codes, const Weights& w,
                                                 size_t steps, const uint8_t* records,
                                                 float* acc) {
  for (size_t i = 0; i < steps; ++i, records += Record<S, T>::kBytes) {
    const Record<S, T> record{records};
    if constexpr (kStepGroups<S> == 2) {
      sum_group<S, T, 0>(codes, w, i, record, 0, acc);
      sum_group<S, T, 4>(codes, w, i, record, 1, acc);
    } else {
      sum_group<S, T, 0>(codes, w, i, record, 0, acc);
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
                                                 size_t steps, const uint8_t* records,
                                                 float* acc) {
  using R = Record<S, T>;
  constexpr bool minimum = traits_of(S).minimum;
  constexpr int quads = kRunCols<S> / 4;
  constexpr int runs = kSpanCols / kRunCols<S>;  // of a span
  constexpr int subs = kSpanCols / traits_of(S).sub_cols;
  constexpr size_t sums_of_subs = words(S);
  for (size_t s = 0; s < steps; ++s, records += R::kBytes) {
    const R record{records};
    const uint8_t* unit = unit_at<S>(w, s);
    const SubScales<S>& sub = codes.sub_scales(unit, s);
    __m256i isum[T][2];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) isum[t][0] = isum[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (size_t j = 0; j < 8; ++j) {
      const uint8_t* span = codes.span(unit, s, j);
      const auto run = [&]<int kRun>(std::integral_constant<int, kRun>) {
        __m256i products[T][2];
        if constexpr (kIsCentred<S>)
          for (size_t t = 0; t < T; ++t)
            products[t][0] = products[t][1] = broadcast(record.word(0, t, runs * j + kRun));
        multiply<T, kRun * quads, quads, !kIsCentred<S>, R::kStride>(
            codes, span, record.codes(j), products);
        add_widened<T>(products, sub.twice[subs * j + kRun * subs / runs], isum);
      };
      [&]<int... kRun>(std::integer_sequence<int, kRun...>) {
        (run(std::integral_constant<int, kRun>{}), ...);
      }(std::make_integer_sequence<int, runs>{});
    }
    const uint8_t* scales = scales_at<S>(w, s);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const __m256 a_scale = broadcast_float(record.scale(0, t));
      for (int h = 0; h < 2; ++h) {
        float* to = acc + kLanes * t + 8 * h;
        __m256 y = add_scaled(load_halves(scales + 16 * h), a_scale, isum[t][h],
                              _mm256_load_ps(to));
        if constexpr (minimum) {
          __m256i correction = _mm256_setzero_si256();
#pragma GCC unroll 4
          for (size_t j = 0; j < sums_of_subs; ++j)
            correction = _mm256_add_epi32(
                correction, _mm256_madd_epi16(load(sub.pairs[j] + 8 * h),
                                              broadcast(record.word(0, t, j))));
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
                                             const uint8_t* records, bool first, float* out) {
  if (first)
    for (int i = 0; i < T * kLanes; i += 8) _mm256_store_ps(out + i, _mm256_setzero_ps());
  if constexpr (traits_of(S).sub_cols == 0)
    add_one_level<S, T>(codes, w, steps, records, out);
  else
    add_two_level<S, T>(codes, w, steps, records, out);
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
