// AVX2: codes and sub-scales from the packed layout into registers, half of the 16 rows in each.
#pragma once

#include "kernels/linear/sweep.h"

namespace farthing::FARTHING_ISA::sweeps {

inline __m256i load(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }
inline void store(void* p, __m256i v) { _mm256_store_si256(static_cast<__m256i*>(p), v); }
inline __m256 load_halves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
}

// low | (h << left & mask)
[[gnu::always_inline]] inline __m256i insert(__m256i low, int left, __m256i h, __m256i mask) {
  const __m256i shifted = left >= 0 ? _mm256_slli_epi16(h, left) : _mm256_srli_epi16(h, -left);
  return _mm256_or_si256(low, _mm256_and_si256(shifted, mask));
}

// The values of a codebook's codes, for vpshufb; nothing in other schemes.
template <bool kCodebook>
struct Lookup {
  explicit Lookup(const int8_t*) {}
};
template <>
struct Lookup<true> {
  __m256i table;
  explicit Lookup(const int8_t* codebook)
      : table(_mm256_broadcastsi128_si256(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(codebook)))) {}
};

// Quad q of a packed span, half h of the rows; 8-bit codes and codebook values are signed.
template <Scheme S>
[[gnu::always_inline]] inline __m256i unpack_quad(const Lookup<traits_of(S).codebook>& lookup,
                                                  const uint8_t* span, int q, int h) {
  constexpr int bits = traits_of(S).code_bits;
  span += 32 * h;
  if constexpr (bits == 8) return load(span + kQuadBytes * q);
  const int i = q / 2;
  __m256i v = load(span + kLineBytes * i);
  if (q % 2 != 0) v = _mm256_srli_epi16(v, 4);
  v = _mm256_and_si256(v, _mm256_set1_epi8(15));
  if constexpr (traits_of(S).codebook) v = _mm256_shuffle_epi8(lookup.table, v);
  if constexpr (bits == 5)
    v = insert(v, 4 - q, load(span + 4 * kLineBytes), _mm256_set1_epi8(0x10));
  if constexpr (bits == 6)
    v = insert(v, 4 - 2 * (q % 4), load(span + (4 + q / 4) * kLineBytes), _mm256_set1_epi8(0x30));
  return v;
}

// Integer scales of a super-block as the second operand of vpmaddwd.
template <Scheme S>
struct SubScales {
  static constexpr int kSubs = kSuperCols / traits_of(S).sub_cols;
  alignas(64) int32_t twice[kSubs][kLanes];      // (scale j, scale j)
  alignas(64) int32_t pairs[kSubs / 2][kLanes];  // (2j, 2j + 1) of minimums, or scales if none

  SubScales() = default;
  explicit SubScales(const uint8_t* sub) {
    alignas(64) uint8_t scales[kSubs * kLanes];
    alignas(64) uint8_t minimums[8 * kLanes];
    if constexpr (S == Scheme::q6_k) {
      for (int i = 0; i < kSubs * kLanes; i += 32) store(scales + i, load(sub + i));
    } else {
      split(sub, scales, minimums);
    }
    const uint8_t* paired = S == Scheme::q6_k ? scales : minimums;
    for (int h = 0; h < kLanes; h += 8) {
      for (int j = 0; j < kSubs; ++j) {
        const __m256i s = widen(scales + kLanes * j + h);
        store(twice[j] + h, join(s, s));
      }
      for (int j = 0; j < kSubs / 2; ++j)
        store(pairs[j] + h,
              join(widen(paired + kLanes * (2 * j) + h), widen(paired + kLanes * (2 * j + 1) + h)));
    }
  }

 private:
  static __m256i widen(const uint8_t* p) {
    const __m128i v = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return S == Scheme::q6_k ? _mm256_cvtepi8_epi32(v) : _mm256_cvtepu8_epi32(v);
  }
  static __m256i join(__m256i low, __m256i high) {
    return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
  }
  static void split(const uint8_t* sub, uint8_t* scales, uint8_t* minimums) {
    const __m256i nibble = _mm256_set1_epi8(15), upper = _mm256_set1_epi8(0x30);
    const auto both = [&](__m256i low, __m256i shifted) {
      return _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(shifted, upper));
    };
    for (int i = 0; i < 64; i += 32) {
      const __m256i first = load(sub + i), second = load(sub + 64 + i), high = load(sub + 128 + i);
      store(scales + i, both(first, _mm256_slli_epi16(high, 4)));
      store(scales + 64 + i, both(second, high));
      store(minimums + i, both(_mm256_srli_epi16(first, 4), _mm256_slli_epi16(high, 2)));
      store(minimums + 64 + i, both(_mm256_srli_epi16(second, 4), _mm256_srli_epi16(high, 2)));
    }
  }
};

// Where a tile finds its weights: the packed row block, unpacked in registers ...
template <Scheme S, Prefetch kPrefetch>
struct PackedCodes {
  Lookup<traits_of(S).codebook> lookup;

  [[gnu::always_inline]] static const uint8_t* span(const uint8_t* unit, size_t, size_t j) {
    prefetch_ahead<S, kPrefetch>(unit, j);
    return unit + traits_of(S).sub_bytes + traits_of(S).span_bytes * j;
  }
  [[gnu::always_inline]] __m256i quad(const uint8_t* span, int q, int h) const {
    return unpack_quad<S>(lookup, span, q, h);
  }
  [[gnu::always_inline]] static SubScales<S> sub_scales(const uint8_t* unit, size_t) {
    return SubScales<S>(unit);
  }
};

// ... or a panel of it, unpacked before: 64 bytes a quad, and the sub-scales.
template <Scheme S, bool kTwoLevel>
struct PanelOf {
  alignas(64) uint8_t codes[kSweepCols * kLanes];
  Weights weights;
};
template <Scheme S>
struct PanelOf<S, true> : PanelOf<S, false> {
  SubScales<S> sub[kSweepCols / kSuperCols];
};
template <Scheme S>
using Panel = PanelOf<S, traits_of(S).sub_cols != 0>;

template <Scheme S>
struct PanelCodes {
  const Panel<S>& panel;
  [[gnu::always_inline]] const uint8_t* span(const uint8_t*, size_t step, size_t j) const {
    return panel.codes + 8 * kQuadBytes * (step * kStepSpans<S> + j);
  }
  [[gnu::always_inline]] static __m256i quad(const uint8_t* span, int q, int h) {
    return load(span + kQuadBytes * q + 32 * h);
  }
  [[gnu::always_inline]] const SubScales<S>& sub_scales(const uint8_t*, size_t step) const {
    return panel.sub[step];
  }
};

template <Scheme S>
void unpack_panel(const Weights& w, size_t steps, Panel<S>& panel) {
  const PackedCodes<S, Prefetch::none> packed{Lookup<traits_of(S).codebook>(w.codebook)};
  uint8_t* to = panel.codes;
  panel.weights = w;
  for (size_t step = 0; step < steps; ++step) {
    const uint8_t* unit = unit_at<S>(w, step);
    if constexpr (traits_of(S).sub_cols != 0) panel.sub[step] = SubScales<S>(unit);
    for (size_t j = 0; j < kStepSpans<S>; ++j) {
      const uint8_t* span = packed.span(unit, step, j);
#pragma GCC unroll 8
      for (int q = 0; q < 8; ++q, to += kQuadBytes)
        for (int h = 0; h < 2; ++h) store(to + 32 * h, packed.quad(span, q, h));
    }
  }
}

}  // namespace farthing::FARTHING_ISA::sweeps
