// Lanes as one 512-bit register.
#pragma once

// GCC's own header leaves registers undefined on purpose, and then warns of them (bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstring>

namespace farthing::FARTHING_ISA {

struct Lanes {
  __m512 v;
};
struct IntLanes {
  __m512i v;
};
struct Mask {
  __mmask16 v;
};

// Register tiles of attention: most vectors, columns of 16 values and blocks of keys for so many.
inline constexpr int kRegisterRows = 14;
inline constexpr int register_columns(int vectors) {
  return vectors <= 3 ? 4 : (vectors <= 7 ? 2 : 1);
}
inline constexpr int register_blocks(int vectors) { return register_columns(vectors); }

FARTHING_INLINE Mask first_lanes(int32_t count) {
  return {static_cast<__mmask16>((uint32_t{1} << count) - 1)};
}

FARTHING_INLINE Lanes broadcast(float x) { return {_mm512_set1_ps(x)}; }
FARTHING_INLINE Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
FARTHING_INLINE Lanes load(const Half* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
FARTHING_INLINE Lanes load(const int8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
// Of the low four bits of each lane.
FARTHING_INLINE Lanes from_nibbles(__m512i x) {
  return {_mm512_permutexvar_ps(x, _mm512_setr_ps(0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f,
                                                  -8.0f, -7.0f, -6.0f, -5.0f, -4.0f, -3.0f, -2.0f,
                                                  -1.0f))};
}
FARTHING_INLINE Lanes load_nibbles(const uint8_t* p) {
  int64_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return from_nibbles(_mm512_srlv_epi32(
      _mm512_set1_epi64(bits),
      _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28)));
}
FARTHING_INLINE void load_nibble_pairs(const uint8_t* p, Lanes& low, Lanes& high) {
  const __m512i bytes =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  low = from_nibbles(bytes);
  high = from_nibbles(_mm512_srli_epi32(bytes, 4));
}
FARTHING_INLINE Lanes load_first(const float* p, int32_t count) {
  return {_mm512_maskz_loadu_ps(first_lanes(count).v, p)};
}
FARTHING_INLINE void store(float* p, Lanes x) { _mm512_storeu_ps(p, x.v); }
FARTHING_INLINE void store(Half* p, Lanes x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}
FARTHING_INLINE void store_first(float* p, int32_t count, Lanes x) {
  _mm512_mask_storeu_ps(p, first_lanes(count).v, x.v);
}

FARTHING_INLINE Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
FARTHING_INLINE Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
FARTHING_INLINE Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
FARTHING_INLINE Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
FARTHING_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
FARTHING_INLINE Lanes maximum(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
FARTHING_INLINE Lanes minimum(Lanes a, Lanes b) { return {_mm512_min_ps(a.v, b.v)}; }
FARTHING_INLINE float sum(Lanes x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
FARTHING_INLINE float largest(Lanes x) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Joins eight rows of 16, lanes 8 apart, then 4, 2 and 1, by `join`; lane i is row i's result.
template <class Join>
FARTHING_INLINE __m256 join_eight_rows(const float* rows, Join join) {
  __m512 pair[4];  // lower half: eight lanes of row i, upper half: of row i + 4
  for (int i = 0; i < 4; ++i) {
    const __m512 a = _mm512_loadu_ps(rows + 16 * i), b = _mm512_loadu_ps(rows + 16 * (i + 4));
    pair[i] = join(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  __m512 four[2];  // quarters: four lanes each of rows i, i + 2, i + 4, i + 6
  for (int i = 0; i < 2; ++i)
    four[i] = join(_mm512_shuffle_f32x4(pair[i], pair[i + 2], 0x88),
                   _mm512_shuffle_f32x4(pair[i], pair[i + 2], 0xdd));
  // Quarters now go by rows (i, i + 4, i + 2, i + 6); two lanes each of row i and row i + 1.
  const __m512 two = join(_mm512_shuffle_ps(four[0], four[1], 0x44),
                          _mm512_shuffle_ps(four[0], four[1], 0xee));
  const __m512 one = join(_mm512_shuffle_ps(two, two, 0x88), _mm512_shuffle_ps(two, two, 0xdd));
  const __m512i order = _mm512_setr_epi32(0, 1, 8, 9, 4, 5, 12, 13, 0, 1, 8, 9, 4, 5, 12, 13);
  return _mm512_castps512_ps256(_mm512_permutexvar_ps(order, one));
}
template <class Join>
FARTHING_INLINE Lanes join_rows(const float* rows, int32_t count, Join join) {
  const __m512 low = _mm512_castps256_ps512(join_eight_rows(rows, join));
  return {count > 8 ? _mm512_insertf32x8(low, join_eight_rows(rows + 128, join), 1) : low};
}
// Lane i: sum or largest of the 16 floats at rows + 16 * i, for i < count; other lanes anything.
// All 16 rows must be readable.
FARTHING_INLINE Lanes sum_of_rows(const float* rows, int32_t count) {
  return join_rows(rows, count, [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); });
}
FARTHING_INLINE Lanes largest_of_rows(const float* rows, int32_t count) {
  return join_rows(rows, count, [](__m512 a, __m512 b) { return _mm512_max_ps(a, b); });
}

FARTHING_INLINE IntLanes broadcast_int(uint32_t x) {
  return {_mm512_set1_epi32(static_cast<int32_t>(x))};
}
FARTHING_INLINE IntLanes iota() {
  return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}
FARTHING_INLINE IntLanes load_ints(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
FARTHING_INLINE void store_ints(uint32_t* p, IntLanes x) { _mm512_storeu_si512(p, x.v); }
FARTHING_INLINE void store_bytes(int8_t* p, IntLanes x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v));
}
FARTHING_INLINE IntLanes operator+(IntLanes a, IntLanes b) { return {_mm512_add_epi32(a.v, b.v)}; }
FARTHING_INLINE IntLanes operator-(IntLanes a, IntLanes b) { return {_mm512_sub_epi32(a.v, b.v)}; }
FARTHING_INLINE IntLanes operator&(IntLanes a, IntLanes b) { return {_mm512_and_si512(a.v, b.v)}; }
FARTHING_INLINE IntLanes operator|(IntLanes a, IntLanes b) { return {_mm512_or_si512(a.v, b.v)}; }
FARTHING_INLINE IntLanes operator^(IntLanes a, IntLanes b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int kBits>
FARTHING_INLINE IntLanes shift_left(IntLanes x) {
  return {_mm512_slli_epi32(x.v, kBits)};
}
template <int kBits>
FARTHING_INLINE IntLanes shift_right(IntLanes x) {
  return {_mm512_srli_epi32(x.v, kBits)};
}
template <int kBits>
FARTHING_INLINE IntLanes shift_right_signed(IntLanes x) {
  return {_mm512_srai_epi32(x.v, kBits)};
}
FARTHING_INLINE void multiply_wide(IntLanes a, uint32_t b, IntLanes& high, IntLanes& low) {
  const __m512i factor = _mm512_set1_epi32(static_cast<int32_t>(b));
  const __m512i even = _mm512_mul_epu32(a.v, factor);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), factor);
  high.v = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
  low.v = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}

FARTHING_INLINE IntLanes as_int(Lanes x) { return {_mm512_castps_si512(x.v)}; }
FARTHING_INLINE Lanes as_float(IntLanes x) { return {_mm512_castsi512_ps(x.v)}; }
FARTHING_INLINE IntLanes round_to_int(Lanes x) { return {_mm512_cvtps_epi32(x.v)}; }
FARTHING_INLINE Lanes to_float(IntLanes x) { return {_mm512_cvtepi32_ps(x.v)}; }
FARTHING_INLINE Lanes look_up(Lanes table, IntLanes index) {
  return {_mm512_permutexvar_ps(index.v, table.v)};
}

FARTHING_INLINE Mask less(Lanes a, Lanes b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
FARTHING_INLINE Mask not_less(Lanes a, Lanes b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_NLT_UQ)};
}
FARTHING_INLINE Mask equal(Lanes a, Lanes b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)};
}
FARTHING_INLINE Mask unordered(Lanes a, Lanes b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_UNORD_Q)};
}
FARTHING_INLINE Mask operator|(Mask a, Mask b) { return {static_cast<__mmask16>(a.v | b.v)}; }
FARTHING_INLINE Mask and_not(Mask excluded, Mask a) {
  return {static_cast<__mmask16>(~excluded.v & a.v)};
}
FARTHING_INLINE Lanes select(Mask mask, Lanes yes, Lanes no) {
  return {_mm512_mask_blend_ps(mask.v, no.v, yes.v)};
}
FARTHING_INLINE Lanes keep(Mask mask, Lanes x) { return {_mm512_maskz_mov_ps(mask.v, x.v)}; }
FARTHING_INLINE Lanes look_up_eight(Lanes table, IntLanes index) { return look_up(table, index); }
FARTHING_INLINE IntLanes increment(Mask mask, IntLanes x) {
  return {_mm512_mask_add_epi32(x.v, mask.v, x.v, _mm512_set1_epi32(1))};
}
FARTHING_INLINE uint32_t mask_bits(Mask mask) { return mask.v; }  // bit i is lane i
FARTHING_INLINE Mask mask_of(uint32_t bits) { return {static_cast<__mmask16>(bits)}; }

}  // namespace farthing::FARTHING_ISA
