// AVX-VNNI: the 64 bytes of a quad in two registers. Codes are unsigned, as VPDPBUSD takes them:
// 128 is added to signed bytes and codebook values.
#pragma once

#include "core/dot_bytes.h"
#include "core/lanes.h"

namespace farthing::FARTHING_ISA::dots {

inline constexpr bool kSignedCodes = false;
inline constexpr int kTileTokens = 4;

struct Bytes {
  __m256i low, high;
};

FARTHING_INLINE Bytes load_bytes(const uint8_t* p) {
  return {_mm256_load_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
FARTHING_INLINE Bytes low_nibbles(Bytes x) {
  const __m256i nibble = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.low, nibble), _mm256_and_si256(x.high, nibble)};
}
FARTHING_INLINE Bytes high_nibbles(Bytes x) {
  return low_nibbles({_mm256_srli_epi16(x.low, 4), _mm256_srli_epi16(x.high, 4)});
}
// low | (high << left & mask), in every byte; `left` may be negative.
FARTHING_INLINE Bytes insert_bits(Bytes low, int left, Bytes high, uint8_t mask) {
  const __m256i kept = _mm256_set1_epi8(static_cast<char>(mask));
  const auto inserted = [&](__m256i to, __m256i from) {
    const __m256i moved =
        left >= 0 ? _mm256_slli_epi16(from, left) : _mm256_srli_epi16(from, -left);
    return _mm256_or_si256(to, _mm256_and_si256(moved, kept));
  };
  return {inserted(low.low, high.low), inserted(low.high, high.high)};
}
// Subtracts modulo 256; of 128 it makes signed bytes unsigned.
FARTHING_INLINE Bytes less(Bytes x, int zero) {
  const __m256i all = _mm256_set1_epi8(static_cast<char>(zero));
  return {_mm256_sub_epi8(x.low, all), _mm256_sub_epi8(x.high, all)};
}

struct Codebook {
  __m256i values;
  explicit Codebook(const int8_t* codebook)
      : values(_mm256_xor_si256(_mm256_broadcastsi128_si256(_mm_loadu_si128(
                                    reinterpret_cast<const __m128i*>(codebook))),
                                _mm256_set1_epi8(-128))) {}
};
FARTHING_INLINE Bytes look_up(const Codebook& book, Bytes codes) {
  return {_mm256_shuffle_epi8(book.values, codes.low),
          _mm256_shuffle_epi8(book.values, codes.high)};
}

// acc + codes (16 rows of four columns) times four activations.
FARTHING_INLINE IntLanes dot(IntLanes acc, Bytes codes, const int8_t* activations) {
  int32_t quad;
  __builtin_memcpy(&quad, activations, 4);
  const __m256i x = _mm256_set1_epi32(quad);
  return {dot_bytes(acc.low, codes.low, x), dot_bytes(acc.high, codes.high, x)};
}
FARTHING_INLINE IntLanes multiply(IntLanes a, IntLanes b) {
  return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
}
// Sixteen bytes, each to 32 bits.
FARTHING_INLINE IntLanes widen_unsigned(const uint8_t* p) {
  const auto eight = [](const uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  };
  return {eight(p), eight(p + 8)};
}
FARTHING_INLINE IntLanes widen_signed(const uint8_t* p) {
  const auto eight = [](const uint8_t* from) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  };
  return {eight(p), eight(p + 8)};
}

}  // namespace farthing::FARTHING_ISA::dots
