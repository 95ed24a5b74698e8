// AVX-512 with VNNI: a register holds one value of each of the 16 rows of a row block.
#include "kernels/linear/packed_row.h"
#include "kernels/linear/sweep.h"

namespace farthing::FARTHING_ISA {
namespace {

constexpr SchemeTraits traits_of(Scheme s) { return kTraits[static_cast<int>(s)]; }

inline __m512i load(const void* p) { return _mm512_load_si512(p); }
inline __m512 load_halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
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

// Codes of the packed planes, unpacked in registers. q8_0 becomes unsigned by adding 128.
template <Scheme S>
struct PackedCodes {
  static constexpr int kZero = traits_of(S).code_bits == 8 ? 128 : traits_of(S).zero;
  const uint8_t* codes;
  const uint8_t* high;

  // Quads 2i and 2i + 1 of a span of 32 columns.
  [[gnu::always_inline]] void pair(size_t span, int i, __m512i& even, __m512i& odd) const {
    constexpr int bits = traits_of(S).code_bits;
    if constexpr (bits == 8) {
      const __m512i flip = _mm512_set1_epi8(-128);
      even = _mm512_xor_si512(load(codes + 512 * span + 128 * i), flip);
      odd = _mm512_xor_si512(load(codes + 512 * span + 128 * i + 64), flip);
      return;
    }
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i v = load(codes + 256 * span + 64 * i);
    even = _mm512_and_si512(v, nibble);
    odd = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
    if constexpr (bits == 5) {
      const __m512i h = load(high + 64 * span);
      even = insert(even, 4 - 2 * i, h, _mm512_set1_epi8(0x10));
      odd = insert(odd, 3 - 2 * i, h, _mm512_set1_epi8(0x10));
    }
    if constexpr (bits == 6) {
      const __m512i h = load(high + 64 * (2 * span + i / 2));
      even = insert(even, 4 - 4 * (i % 2), h, _mm512_set1_epi8(0x30));
      odd = insert(odd, 2 - 4 * (i % 2), h, _mm512_set1_epi8(0x30));
    }
  }

  // low | (h << left & mask)
  [[gnu::always_inline]] static __m512i insert(__m512i low, int left, __m512i h, __m512i mask) {
    const __m512i shifted = left >= 0 ? _mm512_slli_epi16(h, static_cast<unsigned>(left))
                                      : _mm512_srli_epi16(h, static_cast<unsigned>(-left));
    return _mm512_ternarylogic_epi64(shifted, mask, low, 0xea);
  }
};

// Codes already unpacked: 64 bytes a quad.
template <Scheme S>
struct PanelCodes {
  static constexpr int kZero = PackedCodes<S>::kZero;
  const uint8_t* codes;
  [[gnu::always_inline]] void pair(size_t span, int i, __m512i& even, __m512i& odd) const {
    even = load(codes + 512 * span + 128 * i);
    odd = load(codes + 512 * span + 128 * i + 64);
  }
};

// Adds the products of one span of 32 columns, or half of it, to the sums of T tokens.
template <int T, int kFirstPair, int kPairs, class Codes>
[[gnu::always_inline]] inline void add_products(const Codes& codes, size_t span, const Tokens& a,
                                                __m512i (&sums)[T]) {
#pragma GCC unroll 4
  for (int i = kFirstPair; i < kFirstPair + kPairs; ++i) {
    __m512i even, odd;
    codes.pair(span, i, even, odd);
    const int8_t* x = a.codes + 32 * span + 8 * i;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      sums[t] = _mm512_dpbusd_epi32(sums[t], even, broadcast_quad(x + t * a.code_stride));
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      sums[t] = _mm512_dpbusd_epi32(sums[t], odd, broadcast_quad(x + t * a.code_stride + 4));
  }
}

// acc = fma(weight_scale * activation_scale, float(isum), acc)
[[gnu::always_inline]] inline __m512 add_scaled(__m512 weight_scale, float activation_scale,
                                                __m512i isum, __m512 acc) {
  const __m512 p = _mm512_mul_ps(weight_scale, _mm512_set1_ps(activation_scale));
  return _mm512_fmadd_ps(p, _mm512_cvtepi32_ps(isum), acc);
}

template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void one_level_group(const Codes& codes, const uint8_t* scales,
                                                   size_t g, const Tokens& a, __m512 (&acc)[T]) {
  constexpr bool minimum = traits_of(S).minimum;
  __m512i isum[T];
  int32_t asum[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const int32_t* sums = a.sums + t * a.sum_stride + 2 * g;
    asum[t] = sums[0] + sums[1];
    isum[t] = Codes::kZero == 0 ? _mm512_setzero_si512()
                                : _mm512_set1_epi32(asum[t] * -Codes::kZero);
  }
  add_products<T, 0, 4>(codes, g, a, isum);
  scales += (minimum ? 64 : 32) * g;
  const __m512 scale = load_halves(scales);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const float a_scale = a.scales[t * a.scale_stride + g];
    acc[t] = add_scaled(scale, a_scale, isum[t], acc[t]);
    if constexpr (minimum) {
      const __m512 m = _mm512_mul_ps(load_halves(scales + 32), _mm512_set1_ps(a_scale));
      acc[t] = _mm512_fmadd_ps(m, _mm512_set1_ps(static_cast<float>(asum[t])), acc[t]);
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
[[gnu::always_inline]] inline void super_block_with_minimum(const Codes& codes, const uint8_t* sub,
                                                            const uint8_t* scales, size_t s,
                                                            const Tokens& a, __m512 (&acc)[T]) {
  const SubScales sub_scales(sub + kSubScaleBytesQ4K * s);
  __m512i isum[T], msum[T];
  // Sums of 32 activations as int16, two to a dword.
  alignas(16) int32_t asum_pairs[T][4];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    isum[t] = msum[t] = _mm512_setzero_si512();
    const __m512i sums = _mm512_loadu_si512(a.sums + t * a.sum_stride + 16 * s);
    const __m512i pairs = _mm512_add_epi32(sums, _mm512_srli_epi64(sums, 32));
    _mm_store_si128(reinterpret_cast<__m128i*>(asum_pairs[t]), _mm512_cvtepi64_epi16(pairs));
  }
#pragma GCC unroll 1
  for (size_t j = 0; j < 8; ++j) {
    __m512i part[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) part[t] = _mm512_setzero_si512();
    add_products<T, 0, 4>(codes, 8 * s + j, a, part);
    const __m512i scale = load_u8(sub_scales.scales[j]);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      isum[t] = _mm512_add_epi32(isum[t], _mm512_mullo_epi32(part[t], scale));
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i minimums =
        _mm512_or_si512(load_u8(sub_scales.minimums[2 * j]),
                        _mm512_slli_epi32(load_u8(sub_scales.minimums[2 * j + 1]), 16));
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      msum[t] = _mm512_dpwssd_epi32(msum[t], minimums, _mm512_set1_epi32(asum_pairs[t][j]));
  }
  const __m512 d = load_halves(scales + 64 * s), dmin = load_halves(scales + 64 * s + 32);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const float a_scale = a.scales[t * a.scale_stride + s];
    acc[t] = add_scaled(d, a_scale, isum[t], acc[t]);
    const __m512 m = _mm512_mul_ps(dmin, _mm512_set1_ps(a_scale));
    acc[t] = _mm512_fnmadd_ps(m, _mm512_cvtepi32_ps(msum[t]), acc[t]);
  }
}

template <int T, class Codes>
[[gnu::always_inline]] inline void super_block_q6(const Codes& codes, const uint8_t* sub,
                                                  const uint8_t* scales, size_t s, const Tokens& a,
                                                  __m512 (&acc)[T]) {
  __m512i isum[T];
  alignas(64) int32_t start[T][16];  // -32 times the sums of 16 activations
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    isum[t] = _mm512_setzero_si512();
    const __m512i sums = _mm512_loadu_si512(a.sums + t * a.sum_stride + 16 * s);
    _mm512_store_si512(start[t], _mm512_sub_epi32(isum[t], _mm512_slli_epi32(sums, 5)));
  }
  const auto half_span = [&]<int kHalf>(size_t j, std::integral_constant<int, kHalf>) {
    __m512i part[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) part[t] = _mm512_set1_epi32(start[t][2 * j + kHalf]);
    add_products<T, 2 * kHalf, 2>(codes, 8 * s + j, a, part);
    const __m512i scale = load_s8(sub + kSubScaleBytesQ6K * s + kLanes * (2 * j + kHalf));
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      isum[t] = _mm512_add_epi32(isum[t], _mm512_mullo_epi32(part[t], scale));
  };
#pragma GCC unroll 1
  for (size_t j = 0; j < 8; ++j) {
    half_span(j, std::integral_constant<int, 0>{});
    half_span(j, std::integral_constant<int, 1>{});
  }
  const __m512 d = load_halves(scales + 32 * s);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t)
    acc[t] = add_scaled(d, a.scales[t * a.scale_stride + s], isum[t], acc[t]);
}

template <Scheme S, int T, class Codes>
[[gnu::always_inline]] inline void group(const Codes& codes, const Planes& p, size_t g,
                                         const Tokens& a, __m512 (&acc)[T]) {
  if constexpr (S == Scheme::q6_k)
    super_block_q6<T>(codes, p.sub, p.scales, g, a, acc);
  else if constexpr (traits_of(S).sub_cols != 0)
    super_block_with_minimum<S, T>(codes, p.sub, p.scales, g, a, acc);
  else
    one_level_group<S, T>(codes, p.scales, g, a, acc);
}

template <Scheme S>
inline __m512 load_elements(const uint8_t* codes, size_t k) {
  if constexpr (S == Scheme::f32) return _mm512_load_ps(codes + 64 * k);
  const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes + 32 * k));
  if constexpr (S == Scheme::f16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

struct Ops {
  template <Scheme S>
  static constexpr int stream_tokens() {
    return kMaxTile;
  }
  template <Scheme S>
  static constexpr int sweep_tile() {
    return kMaxTile;
  }
  template <Scheme S>
  static constexpr int panel_cols() {
    return 1024;
  }
  template <Scheme S>
  struct Panel {
    uint8_t codes[1024 * kLanes];
  };

  // acc = sums of T tokens over all columns. `next`: the row block whose bytes come after.
  template <Scheme S, int T>
  static void stream(const Planes& p, int32_t cols, const Tokens& a, const uint8_t* next,
                     float* out) {
    __m512 acc[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) acc[t] = _mm512_setzero_ps();
    if constexpr (traits_of(S).group == 0) {
      for (size_t k = 0; k < static_cast<size_t>(cols); ++k) {
        const __m512 w = load_elements<S>(p.codes, k);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
          acc[t] = _mm512_fmadd_ps(w, _mm512_set1_ps(a.values[t * a.value_stride + k]), acc[t]);
      }
      (void)next;
    } else {
      const PackedCodes<S> codes{p.codes, p.high};
      const size_t groups = static_cast<size_t>(cols / traits_of(S).group);
      for (size_t g = 0; g < groups; ++g) group<S, T>(codes, p, g, a, acc);
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) _mm512_store_ps(out + kLanes * t, acc[t]);
  }

  template <Scheme S>
  static void unpack(const Planes& p, int32_t cols, Panel<S>& panel) {
    const PackedCodes<S> codes{p.codes, p.high};
    uint8_t* to = panel.codes;
    for (size_t span = 0; span < static_cast<size_t>(cols / kSpanCols); ++span) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i, to += 128) {
        __m512i even, odd;
        codes.pair(span, i, even, odd);
        _mm512_store_si512(to, even);
        _mm512_store_si512(to + 64, odd);
      }
    }
  }

  // acc += sums of T tokens over the panel's columns (acc = if this is the first panel).
  template <Scheme S, int T>
  static void sweep(const Panel<S>& panel, const Planes& p, int32_t cols, const Tokens& a,
                    bool first, float* out) {
    __m512 acc[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      acc[t] = first ? _mm512_setzero_ps() : _mm512_load_ps(out + kLanes * t);
    const PanelCodes<S> codes{panel.codes};
    const size_t groups = static_cast<size_t>(cols / traits_of(S).group);
    for (size_t g = 0; g < groups; ++g) group<S, T>(codes, p, g, a, acc);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) _mm512_store_ps(out + kLanes * t, acc[t]);
  }
};

void quantize_row(const float* x, int32_t cols, int32_t group_cols, int8_t* codes, float* scales,
                  int32_t* sums) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (int32_t first = 0; first < cols; first += group_cols) {
    __m512i largest = _mm512_setzero_si512();
    for (int32_t k = first; k < first + group_cols; k += 16)
      largest = _mm512_max_epi32(largest,
                                 _mm512_and_si512(_mm512_loadu_si512(x + k), magnitude));
    const int32_t bits = _mm512_reduce_max_epi32(largest);
    const float absmax = std::bit_cast<float>(bits);
    const bool usable = bits < 0x7f800000 && !(absmax < 1e-30f);
    scales[first / group_cols] = bits < 0x7f800000 && !usable ? 0.0f : absmax / 127.0f;
    const __m512 inverse = _mm512_set1_ps(127.0f / absmax);
    const __mmask16 keep = usable ? 0xffff : 0;
    for (int32_t k = first; k < first + group_cols; k += 16) {
      const __m512i code = _mm512_maskz_cvt_roundps_epi32(
          keep, _mm512_mul_ps(_mm512_loadu_ps(x + k), inverse),
          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + k), _mm512_cvtepi32_epi8(code));
      sums[k / kSumRun] = _mm512_reduce_add_epi32(code);
    }
  }
}

}  // namespace

extern const LinearKernels linear_table;
const LinearKernels linear_table = {linear<Ops>, dequantize_row, quantize_row};

}  // namespace farthing::FARTHING_ISA
