// AVX2: a row block is two halves of 8 rows. Products of unsigned codes and signed activations add
// up in 16 bits as deep as the code's width allows before they are widened:
//   4-bit codes  8 quads: 2 * 15 * 127 * 8 = 30,480
//   5-bit codes  4 quads: 2 * 31 * 127 * 4 = 31,496
//   6-bit codes  2 quads: 2 * 63 * 127 * 2 = 32,004
// q8_0 multiplies magnitudes instead (2 * 128 * 127 = 32,512 in one pair) and widens every time.
#include "kernels/linear/packed_row.h"
#include "kernels/linear/sweep.h"

namespace farthing::FARTHING_ISA {
namespace {

constexpr SchemeTraits traits_of(Scheme s) { return kTraits[static_cast<int>(s)]; }

struct Halves {
  __m256i half[2];
};

inline __m256i load(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }
inline __m256 load_halves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
}
inline __m128i load_8(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
inline __m256i broadcast_quad(const int8_t* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}

// Codes of the packed planes, unpacked in registers. q8_0 stays signed.
template <Scheme S>
struct PackedCodes {
  const uint8_t* codes;
  const uint8_t* high;

  // Quads 2i and 2i + 1 of a span of 32 columns; half h of the rows.
  [[gnu::always_inline]] void pair(size_t span, int i, int h, __m256i& even, __m256i& odd) const {
    constexpr int bits = traits_of(S).code_bits;
    const size_t at = 32 * static_cast<size_t>(h);
    if constexpr (bits == 8) {
      even = load(codes + 512 * span + 128 * i + at);
      odd = load(codes + 512 * span + 128 * i + 64 + at);
      return;
    }
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i v = load(codes + 256 * span + 64 * i + at);
    even = _mm256_and_si256(v, nibble);
    odd = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
    if constexpr (bits == 5) {
      const __m256i bits5 = load(high + 64 * span + at);
      even = insert(even, 4 - 2 * i, bits5, _mm256_set1_epi8(0x10));
      odd = insert(odd, 3 - 2 * i, bits5, _mm256_set1_epi8(0x10));
    }
    if constexpr (bits == 6) {
      const __m256i bits6 = load(high + 64 * (2 * span + i / 2) + at);
      even = insert(even, 4 - 4 * (i % 2), bits6, _mm256_set1_epi8(0x30));
      odd = insert(odd, 2 - 4 * (i % 2), bits6, _mm256_set1_epi8(0x30));
    }
  }

  // low | (h << left & mask)
  [[gnu::always_inline]] static __m256i insert(__m256i low, int left, __m256i h, __m256i mask) {
    const __m256i shifted = left >= 0 ? _mm256_slli_epi16(h, left) : _mm256_srli_epi16(h, -left);
    return _mm256_or_si256(low, _mm256_and_si256(shifted, mask));
  }
};

// Codes already unpacked: 64 bytes a quad.
struct PanelCodes {
  const uint8_t* codes;
  [[gnu::always_inline]] void pair(size_t span, int i, int h, __m256i& even, __m256i& odd) const {
    even = load(codes + 512 * span + 128 * i + 32 * h);
    odd = load(codes + 512 * span + 128 * i + 64 + 32 * h);
  }
};

// products += sums over kPairs pairs of quads, 16 bits; the caller knows they cannot overflow.
template <int T, int kFirstPair, int kPairs, class Codes>
[[gnu::always_inline]] inline void add_products(const Codes& codes, size_t span, const Tokens& a,
                                                __m256i (&products)[T][2]) {
#pragma GCC unroll 4
  for (int i = kFirstPair; i < kFirstPair + kPairs; ++i) {
    __m256i even[2], odd[2];
    codes.pair(span, i, 0, even[0], odd[0]);
    codes.pair(span, i, 1, even[1], odd[1]);
    const int8_t* x = a.codes + 32 * span + 8 * i;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const __m256i b = broadcast_quad(x + t * a.code_stride);
      for (int h = 0; h < 2; ++h) {
        const __m256i p = _mm256_maddubs_epi16(even[h], b);
        products[t][h] = i == kFirstPair ? p : _mm256_add_epi16(products[t][h], p);
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const __m256i b = broadcast_quad(x + t * a.code_stride + 4);
      for (int h = 0; h < 2; ++h)
        products[t][h] =
            _mm256_add_epi16(products[t][h], _mm256_maddubs_epi16(odd[h], b));
    }
  }
}

// Sums of one span of signed 8-bit codes: |w| * (a with the sign of w).
template <int T, class Codes>
[[gnu::always_inline]] inline void sum_signed_span(const Codes& codes, size_t span, const Tokens& a,
                                                   __m256i (&sums)[T][2]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    for (int h = 0; h < 2; ++h) {
      __m256i w[2];
      codes.pair(span, i, h, w[0], w[1]);
      for (int odd = 0; odd < 2; ++odd) {
        const __m256i magnitude = _mm256_abs_epi8(w[odd]);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          const int8_t* x = a.codes + t * a.code_stride + 32 * span + 8 * i + 4 * odd;
          const __m256i b = _mm256_sign_epi8(broadcast_quad(x), w[odd]);
          const __m256i p = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, b), ones);
          sums[t][h] = i == 0 && odd == 0 ? p : _mm256_add_epi32(sums[t][h], p);
        }
      }
    }
  }
}

// Sums over one span: int32 of code * activation, before the zero point is taken off.
template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void sum_span(const Codes& codes, size_t span, const Tokens& a,
                                            __m256i (&sums)[T][2]) {
  if constexpr (traits_of(S).code_bits == 8) {
    sum_signed_span<T>(codes, span, a, sums);
  } else {
    const __m256i ones = _mm256_set1_epi16(1);
    constexpr int deep = traits_of(S).code_bits == 4 ? 4 : 2;  // pairs of quads
    __m256i products[T][2];
    add_products<T, 0, deep>(codes, span, a, products);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < 2; ++h) sums[t][h] = _mm256_madd_epi16(products[t][h], ones);
    if constexpr (deep == 2) {
      add_products<T, 2, 2>(codes, span, a, products);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t)
        for (int h = 0; h < 2; ++h)
          sums[t][h] =
              _mm256_add_epi32(sums[t][h], _mm256_madd_epi16(products[t][h], ones));
    }
  }
}

// acc (T, 16) = fma(weight_scale * activation_scale, float(isum), acc), in memory
[[gnu::always_inline]] inline void add_scaled(__m256 weight_scale, __m256 activation_scale,
                                              __m256i isum, float* acc) {
  const __m256 p = _mm256_mul_ps(weight_scale, activation_scale);
  _mm256_store_ps(acc, _mm256_fmadd_ps(p, _mm256_cvtepi32_ps(isum), _mm256_load_ps(acc)));
}

template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void one_level_group(const Codes& codes, const uint8_t* scales,
                                                   size_t g, const Tokens& a, float* acc) {
  constexpr bool minimum = traits_of(S).minimum;
  __m256i isum[T][2];
  sum_span<S, T>(codes, g, a, isum);
  scales += (minimum ? 64 : 32) * g;
  const __m256 scale[2] = {load_halves(scales), load_halves(scales + 16)};
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const int32_t* sums = a.sums + t * a.sum_stride + 2 * g;
    const int32_t asum = sums[0] + sums[1];
    const __m256 a_scale = _mm256_set1_ps(a.scales[t * a.scale_stride + g]);
    for (int h = 0; h < 2; ++h) {
      float* to = acc + kLanes * t + 8 * h;
      if constexpr (traits_of(S).zero != 0)
        isum[t][h] = _mm256_sub_epi32(isum[t][h], _mm256_set1_epi32(asum * traits_of(S).zero));
      add_scaled(scale[h], a_scale, isum[t][h], to);
      if constexpr (minimum) {
        const __m256 m = _mm256_mul_ps(load_halves(scales + 32 + 16 * h), a_scale);
        _mm256_store_ps(to, _mm256_fmadd_ps(m, _mm256_set1_ps(static_cast<float>(asum)),
                                            _mm256_load_ps(to)));
      }
    }
  }
}

// Integer scales of a super-block as the second operand of vpmaddwd.
template <Scheme S>
struct SubScales {
  static constexpr int kSubs = 256 / (traits_of(S).sub_cols == 0 ? 32 : traits_of(S).sub_cols);
  alignas(64) int32_t twice[kSubs][kLanes];      // (scale j, scale j)
  alignas(64) int32_t pairs[kSubs / 2][kLanes];  // (2j, 2j + 1) of minimums, or scales if none

  explicit SubScales(const uint8_t* sub) {
    alignas(64) uint8_t scales[kSubs * kLanes];
    alignas(64) uint8_t minimums[8 * kLanes];
    if constexpr (S == Scheme::q6_k) {
      for (int i = 0; i < kSubs * kLanes; i += 32)
        _mm256_store_si256(reinterpret_cast<__m256i*>(scales + i), load(sub + i));
    } else {
      split(sub, scales, minimums);
    }
    for (int j = 0; j < kSubs; ++j) {
      for (int h = 0; h < 2; ++h) {
        const __m256i s = widen(scales + kLanes * j + 8 * h);
        const __m256i low = _mm256_and_si256(s, _mm256_set1_epi32(0xffff));
        store(twice[j] + 8 * h, _mm256_or_si256(low, _mm256_slli_epi32(s, 16)));
      }
    }
    const uint8_t* paired = S == Scheme::q6_k ? scales : minimums;
    for (int j = 0; j < kSubs / 2; ++j) {
      for (int h = 0; h < 2; ++h) {
        const __m256i even = widen(paired + kLanes * (2 * j) + 8 * h);
        const __m256i odd = widen(paired + kLanes * (2 * j + 1) + 8 * h);
        const __m256i low = _mm256_and_si256(even, _mm256_set1_epi32(0xffff));
        store(pairs[j] + 8 * h, _mm256_or_si256(low, _mm256_slli_epi32(odd, 16)));
      }
    }
  }

 private:
  static void store(int32_t* p, __m256i v) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), v);
  }
  static __m256i widen(const uint8_t* p) {
    return S == Scheme::q6_k ? _mm256_cvtepi8_epi32(load_8(p)) : _mm256_cvtepu8_epi32(load_8(p));
  }
  static void split(const uint8_t* sub, uint8_t* scales, uint8_t* minimums) {
    const __m256i nibble = _mm256_set1_epi8(15), upper = _mm256_set1_epi8(0x30);
    const auto join = [&](__m256i low, __m256i shifted) {
      return _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(shifted, upper));
    };
    for (int i = 0; i < 64; i += 32) {
      const __m256i first = load(sub + i), second = load(sub + 64 + i), high = load(sub + 128 + i);
      const auto put = [&](uint8_t* p, __m256i v) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(p + i), v);
      };
      put(scales, join(first, _mm256_slli_epi16(high, 4)));
      put(scales + 64, join(second, high));
      put(minimums, join(_mm256_srli_epi16(first, 4), _mm256_slli_epi16(high, 2)));
      put(minimums + 64, join(_mm256_srli_epi16(second, 4), _mm256_srli_epi16(high, 2)));
    }
  }
};

// Sums of the activations of a super-block's sub-blocks as int16, two to a dword.
template <Scheme S>
[[gnu::always_inline]] inline void pair_sums(const int32_t* sums, int32_t* pairs) {
  const __m256i* from = reinterpret_cast<const __m256i*>(sums);
  const __m256i first = _mm256_loadu_si256(from), second = _mm256_loadu_si256(from + 1);
  if constexpr (S == Scheme::q6_k) {
    const __m256i packed = _mm256_packs_epi32(first, second);
    _mm256_store_si256(reinterpret_cast<__m256i*>(pairs), _mm256_permute4x64_epi64(packed, 0xd8));
  } else {
    const __m256i added = _mm256_permute4x64_epi64(_mm256_hadd_epi32(first, second), 0xd8);
    const __m128i packed = _mm_packs_epi32(_mm256_castsi256_si128(added),
                                           _mm256_extracti128_si256(added, 1));
    _mm_store_si128(reinterpret_cast<__m128i*>(pairs), packed);
  }
}

// isum += scale * sum, while widening; isum in memory: (T, 2) registers
template <int T>
[[gnu::always_inline]] inline void add_widened(const __m256i (&products)[T][2],
                                               const int32_t* scale, __m256i* isum) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < 2; ++h)
      isum[2 * t + h] = _mm256_add_epi32(
          isum[2 * t + h], _mm256_madd_epi16(products[t][h], load(scale + 8 * h)));
}

template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void super_block(const Codes& codes, const SubScales<S>& sub,
                                               const uint8_t* scales, size_t s, const Tokens& a,
                                               float* acc) {
  __m256i isum[2 * T];
#pragma GCC unroll 8
  for (int t = 0; t < 2 * T; ++t) isum[t] = _mm256_setzero_si256();
#pragma GCC unroll 1
  for (size_t j = 0; j < 8; ++j) {
    __m256i products[T][2];
    if constexpr (S == Scheme::q4_k) {
      add_products<T, 0, 4>(codes, 8 * s + j, a, products);
      add_widened<T>(products, sub.twice[j], isum);
    } else if constexpr (S == Scheme::q5_k) {
      add_products<T, 0, 2>(codes, 8 * s + j, a, products);
      add_widened<T>(products, sub.twice[j], isum);
      add_products<T, 2, 2>(codes, 8 * s + j, a, products);
      add_widened<T>(products, sub.twice[j], isum);
    } else {
      add_products<T, 0, 1>(codes, 8 * s + j, a, products);
      add_widened<T>(products, sub.twice[2 * j], isum);
      add_products<T, 1, 1>(codes, 8 * s + j, a, products);
      add_widened<T>(products, sub.twice[2 * j], isum);
      add_products<T, 2, 1>(codes, 8 * s + j, a, products);
      add_widened<T>(products, sub.twice[2 * j + 1], isum);
      add_products<T, 3, 1>(codes, 8 * s + j, a, products);
      add_widened<T>(products, sub.twice[2 * j + 1], isum);
    }
  }
  constexpr bool minimum = traits_of(S).minimum;
  constexpr int line = minimum ? 64 : 32;
#pragma GCC unroll 1
  for (int t = 0; t < T; ++t) {
    alignas(32) int32_t pairs[8];
    pair_sums<S>(a.sums + static_cast<size_t>(t) * a.sum_stride + 16 * s, pairs);
    const __m256 a_scale =
        _mm256_set1_ps(a.scales[static_cast<size_t>(t) * a.scale_stride + s]);
    for (int h = 0; h < 2; ++h) {
      float* to = acc + kLanes * t + 8 * h;
      __m256i correction = _mm256_setzero_si256();
#pragma GCC unroll 8
      for (int j = 0; j < SubScales<S>::kSubs / 2; ++j)
        correction = _mm256_add_epi32(correction,
                                      _mm256_madd_epi16(load(sub.pairs[j] + 8 * h),
                                                        _mm256_set1_epi32(pairs[j])));
      __m256i sum = isum[2 * t + h];
      if constexpr (!minimum) sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(correction, 5));
      add_scaled(load_halves(scales + line * s + 16 * h), a_scale, sum, to);
      if constexpr (minimum) {
        const __m256 m = _mm256_mul_ps(load_halves(scales + line * s + 32 + 16 * h), a_scale);
        _mm256_store_ps(to, _mm256_fnmadd_ps(m, _mm256_cvtepi32_ps(correction),
                                             _mm256_load_ps(to)));
      }
    }
  }
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

struct Ops {
  template <Scheme S>
  static constexpr int stream_tokens() {
    return 4;
  }
  template <Scheme S>
  static constexpr int sweep_tile() {
    return 4;
  }
  template <Scheme S>
  static constexpr int panel_cols() {
    return 1024;
  }
  template <Scheme S>
  struct Panel {
    uint8_t codes[1024 * kLanes];
  };

  template <Scheme S, int T, class Codes>
  static void add_groups(const Codes& codes, const Planes& p, int32_t cols, const Tokens& a,
                         float* acc) {
    const size_t groups = static_cast<size_t>(cols / traits_of(S).group);
    for (size_t g = 0; g < groups; ++g) {
      if constexpr (traits_of(S).sub_cols == 0) {
        one_level_group<S, T>(codes, p.scales, g, a, acc);
      } else {
        constexpr int bytes = traits_of(S).minimum ? kSubScaleBytesQ4K : kSubScaleBytesQ6K;
        const SubScales<S> sub(p.sub + bytes * g);
        super_block<S, T>(codes, sub, p.scales, g, a, acc);
      }
    }
  }

  template <Scheme S, int T>
  static void stream(const Planes& p, int32_t cols, const Tokens& a, const uint8_t* next,
                     float* out) {
    (void)next;
    if constexpr (traits_of(S).group == 0) {
      __m256 acc[T][2];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) acc[t][0] = acc[t][1] = _mm256_setzero_ps();
      for (size_t k = 0; k < static_cast<size_t>(cols); ++k) {
        const __m256 w[2] = {load_elements<S>(p.codes, k, 0), load_elements<S>(p.codes, k, 1)};
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          const __m256 x = _mm256_set1_ps(a.values[t * a.value_stride + k]);
          for (int h = 0; h < 2; ++h) acc[t][h] = _mm256_fmadd_ps(w[h], x, acc[t][h]);
        }
      }
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t)
        for (int h = 0; h < 2; ++h) _mm256_store_ps(out + kLanes * t + 8 * h, acc[t][h]);
    } else {
      for (int i = 0; i < T * kLanes; i += 8) _mm256_store_ps(out + i, _mm256_setzero_ps());
      add_groups<S, T>(PackedCodes<S>{p.codes, p.high}, p, cols, a, out);
    }
  }

  template <Scheme S>
  static void unpack(const Planes& p, int32_t cols, Panel<S>& panel) {
    const PackedCodes<S> codes{p.codes, p.high};
    uint8_t* to = panel.codes;
    for (size_t span = 0; span < static_cast<size_t>(cols / kSpanCols); ++span) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i, to += 128) {
        for (int h = 0; h < 2; ++h) {
          __m256i even, odd;
          codes.pair(span, i, h, even, odd);
          _mm256_store_si256(reinterpret_cast<__m256i*>(to + 32 * h), even);
          _mm256_store_si256(reinterpret_cast<__m256i*>(to + 64 + 32 * h), odd);
        }
      }
    }
  }

  template <Scheme S, int T>
  static void sweep(const Panel<S>& panel, const Planes& p, int32_t cols, const Tokens& a,
                    bool first, float* out) {
    if (first)
      for (int i = 0; i < T * kLanes; i += 8) _mm256_store_ps(out + i, _mm256_setzero_ps());
    add_groups<S, T>(PanelCodes{panel.codes}, p, cols, a, out);
  }
};

void quantize_row(const float* x, int32_t cols, int32_t group_cols, int8_t* codes, float* scales,
                  int32_t* sums) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  const auto load_bits = [](const float* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  };
  for (int32_t first = 0; first < cols; first += group_cols) {
    __m256i largest = _mm256_setzero_si256();
    for (int32_t k = first; k < first + group_cols; k += 8)
      largest = _mm256_max_epi32(largest, _mm256_and_si256(load_bits(x + k), magnitude));
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(largest),
                                 _mm256_extracti128_si256(largest, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
    const int32_t bits = _mm_cvtsi128_si32(most);
    const float absmax = std::bit_cast<float>(bits);
    const bool usable = bits < 0x7f800000 && !(absmax < 1e-30f);
    scales[first / group_cols] = bits < 0x7f800000 && !usable ? 0.0f : absmax / 127.0f;
    const __m256 inverse = _mm256_set1_ps(127.0f / absmax);
    const __m256i keep = _mm256_set1_epi32(usable ? -1 : 0);
    const auto round = [&](const float* p) {
      const __m256 y = _mm256_round_ps(_mm256_mul_ps(_mm256_loadu_ps(p), inverse),
                                       _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      return _mm256_and_si256(_mm256_cvtps_epi32(y), keep);
    };
    for (int32_t k = first; k < first + group_cols; k += kSumRun) {
      const __m256i low = round(x + k), high = round(x + k + 8);
      const __m256i packed =
          _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
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
}

}  // namespace

extern const LinearKernels linear_table;
const LinearKernels linear_table = {linear<Ops>, dequantize_row, quantize_row};

}  // namespace farthing::FARTHING_ISA
