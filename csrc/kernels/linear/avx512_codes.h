// AVX-512 with VNNI: codes from the packed layout into registers, which hold one value of each of the
// 16 rows of a row block. Codes are unsigned here: 128 is added to signed bytes and codebook values.
#pragma once

#include "kernels/linear/sweep.h"

namespace farthing::FARTHING_ISA::sweeps {

inline __m512i load(const void* p) { return _mm512_load_si512(p); }
inline __m512 load_halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
}

// low | (h << left & mask)
[[gnu::always_inline]] inline __m512i insert(__m512i low, int left, __m512i h, __m512i mask) {
  const __m512i shifted = left >= 0 ? _mm512_slli_epi16(h, static_cast<unsigned>(left))
                                    : _mm512_srli_epi16(h, static_cast<unsigned>(-left));
  return _mm512_ternarylogic_epi64(shifted, mask, low, 0xea);
}

// The values of a codebook's codes plus 128, for vpshufb; nothing in other schemes.
template <bool kCodebook>
struct Lookup {
  explicit Lookup(const int8_t*) {}
};
template <>
struct Lookup<true> {
  __m512i table;
  explicit Lookup(const int8_t* codebook)
      : table(_mm512_xor_si512(_mm512_broadcast_i32x4(_mm_loadu_si128(
                                   reinterpret_cast<const __m128i*>(codebook))),
                               _mm512_set1_epi8(-128))) {}
};

// Where a tile finds its weights: the packed row block, unpacked in registers ...
template <Scheme S, Prefetch kPrefetch>
struct PackedCodes {
  Lookup<traits_of(S).codebook> lookup;

  [[gnu::always_inline]] static const uint8_t* span(const uint8_t* unit, size_t, size_t j) {
    constexpr SchemeTraits traits = traits_of(S);
    const uint8_t* p = unit + traits.sub_bytes + traits.span_bytes * j;
    prefetch_ahead<S, kPrefetch>(unit, j);
    return p;
  }

  // Quads 2i and 2i + 1 of a span.
  [[gnu::always_inline]] void pair(const uint8_t* span, int i, __m512i& even,
                                   __m512i& odd) const {
    constexpr int bits = traits_of(S).code_bits;
    if constexpr (bits == 8) {
      const __m512i flip = _mm512_set1_epi8(-128);
      even = _mm512_xor_si512(load(span + 128 * i), flip);
      odd = _mm512_xor_si512(load(span + 128 * i + 64), flip);
      return;
    }
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i v = load(span + 64 * i);
    even = _mm512_and_si512(v, nibble);
    odd = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
    if constexpr (traits_of(S).codebook) {
      even = _mm512_shuffle_epi8(lookup.table, even);
      odd = _mm512_shuffle_epi8(lookup.table, odd);
    }
    if constexpr (bits == 5) {
      const __m512i h = load(span + 256);
      even = insert(even, 4 - 2 * i, h, _mm512_set1_epi8(0x10));
      odd = insert(odd, 3 - 2 * i, h, _mm512_set1_epi8(0x10));
    }
    if constexpr (bits == 6) {
      const __m512i h = load(span + 256 + 64 * (i / 2));
      even = insert(even, 4 - 4 * (i % 2), h, _mm512_set1_epi8(0x30));
      odd = insert(odd, 2 - 4 * (i % 2), h, _mm512_set1_epi8(0x30));
    }
  }
};

// ... or a panel of it, unpacked before: 64 bytes a quad.
template <Scheme S>
struct Panel {
  alignas(64) uint8_t codes[kSweepCols * kLanes];
  Weights weights;
};

template <Scheme S>
struct PanelCodes {
  const Panel<S>& panel;
  [[gnu::always_inline]] const uint8_t* span(const uint8_t*, size_t step, size_t j) const {
    return panel.codes + 8 * kQuadBytes * (step * kStepSpans<S> + j);
  }
  [[gnu::always_inline]] static void pair(const uint8_t* span, int i, __m512i& even,
                                          __m512i& odd) {
    even = load(span + 128 * i);
    odd = load(span + 128 * i + 64);
  }
};

template <Scheme S>
void unpack_panel(const Weights& w, size_t steps, Panel<S>& panel) {
  const PackedCodes<S, Prefetch::none> packed{Lookup<traits_of(S).codebook>(w.codebook)};
  uint8_t* to = panel.codes;
  panel.weights = w;
  for (size_t step = 0; step < steps; ++step) {
    for (size_t j = 0; j < kStepSpans<S>; ++j) {
      const uint8_t* span = packed.span(unit_at<S>(w, step), step, j);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i, to += 128) {
        __m512i even, odd;
        packed.pair(span, i, even, odd);
        _mm512_store_si512(to, even);
        _mm512_store_si512(to + 64, odd);
      }
    }
  }
}

}  // namespace farthing::FARTHING_ISA::sweeps
