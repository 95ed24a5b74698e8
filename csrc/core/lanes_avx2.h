// Lanes as two 256-bit registers.
#pragma once

#include <immintrin.h>

#include <cstring>

namespace farthing::FARTHING_ISA {

struct Lanes {
  __m256 low, high;
};
struct IntLanes {
  __m256i low, high;
};
struct Mask {  // all ones or all zeros per lane
  __m256 low, high;
};

// Register tiles of attention: most vectors, columns of 16 values and blocks of keys for so many.
// 16 registers hold two for each accumulator, two for a load and one for each broadcast.
inline constexpr int kRegisterRows = 6;
inline constexpr int register_columns(int vectors) {
  return vectors == 1 ? 4 : (vectors == 2 ? 2 : 1);
}
inline constexpr int register_blocks(int vectors) { return register_columns(vectors); }

FARTHING_INLINE Mask first_lanes(int32_t count) {
  const __m256i n = _mm256_set1_epi32(count);
  const __m256i low = _mm256_cmpgt_epi32(n, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i high = _mm256_cmpgt_epi32(n, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
  return {_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)};
}

FARTHING_INLINE Lanes broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
FARTHING_INLINE Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
FARTHING_INLINE Lanes load(const Half* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
FARTHING_INLINE Lanes load(const int8_t* p) {
  const auto eight = [](const int8_t* from) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  };
  return {eight(p), eight(p + 8)};
}
FARTHING_INLINE Lanes load_nibbles(const uint8_t* p) {
  int64_t bits;
  std::memcpy(&bits, p, sizeof bits);
  const __m256i words = _mm256_set1_epi64x(bits);
  const auto eight = [&](__m256i to_the_top) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_sllv_epi32(words, to_the_top), 28));
  };
  return {eight(_mm256_setr_epi32(28, 28, 24, 24, 20, 20, 16, 16)),
          eight(_mm256_setr_epi32(12, 12, 8, 8, 4, 4, 0, 0))};
}
FARTHING_INLINE void load_nibble_pairs(const uint8_t* p, Lanes& low, Lanes& high) {
  const auto eight = [](const uint8_t* from, __m256& first, __m256& second) {
    const __m256i bytes =
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    first = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(bytes, 28), 28));
    second = _mm256_cvtepi32_ps(_mm256_srai_epi32(bytes, 4));
  };
  eight(p, low.low, high.low);
  eight(p + 8, low.high, high.high);
}
FARTHING_INLINE Lanes load_first(const float* p, int32_t count) {
  const Mask m = first_lanes(count);
  // The upper address is formed only where it exists.
  return {_mm256_maskload_ps(p, _mm256_castps_si256(m.low)),
          count > 8 ? _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.high))
                    : _mm256_setzero_ps()};
}
FARTHING_INLINE void store(float* p, Lanes x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
FARTHING_INLINE void store(Half* p, Lanes x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8),
                   _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT));
}
FARTHING_INLINE void store_first(float* p, int32_t count, Lanes x) {
  const Mask m = first_lanes(count);
  _mm256_maskstore_ps(p, _mm256_castps_si256(m.low), x.low);
  if (count > 8) _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.high), x.high);
}

FARTHING_INLINE Lanes operator+(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
FARTHING_INLINE Lanes operator-(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
FARTHING_INLINE Lanes operator*(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
FARTHING_INLINE Lanes operator/(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
FARTHING_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
FARTHING_INLINE Lanes maximum(Lanes a, Lanes b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
FARTHING_INLINE Lanes minimum(Lanes a, Lanes b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
FARTHING_INLINE float sum(Lanes x) {
  const __m256 eight = _mm256_add_ps(x.low, x.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
FARTHING_INLINE float largest(Lanes x) {
  const __m256 eight = _mm256_max_ps(x.low, x.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Joins eight rows of 16, lanes 8 apart, then 4, 2 and 1, by `join`; lane i is row i's result.
template <class Join>
FARTHING_INLINE __m256 join_eight_rows(const float* rows, Join join) {
  __m256 row[8];
  for (int i = 0; i < 8; ++i)
    row[i] = join(_mm256_loadu_ps(rows + 16 * i), _mm256_loadu_ps(rows + 16 * i + 8));
  __m256 pair[4];  // lower half: row i, upper half: row i + 4
  for (int i = 0; i < 4; ++i)
    pair[i] = join(_mm256_permute2f128_ps(row[i], row[i + 4], 0x20),
                   _mm256_permute2f128_ps(row[i], row[i + 4], 0x31));
  __m256 four[2];  // in each half two lanes of row i and two of row i + 2
  for (int i = 0; i < 2; ++i)
    four[i] = join(_mm256_shuffle_ps(pair[i], pair[i + 2], 0x44),
                   _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee));
  const __m256 all = join(_mm256_shuffle_ps(four[0], four[1], 0x88),
                          _mm256_shuffle_ps(four[0], four[1], 0xdd));
  return _mm256_shuffle_ps(all, all, 0xd8);  // rows 0 2 1 3 of each half in order
}
template <class Join>
FARTHING_INLINE Lanes join_rows(const float* rows, int32_t count, Join join) {
  const __m256 low = join_eight_rows(rows, join);
  return {low, count > 8 ? join_eight_rows(rows + 128, join) : low};
}
// Lane i: sum or largest of the 16 floats at rows + 16 * i, for i < count; other lanes anything.
// All 16 rows must be readable.
FARTHING_INLINE Lanes sum_of_rows(const float* rows, int32_t count) {
  return join_rows(rows, count, [](__m256 a, __m256 b) { return _mm256_add_ps(a, b); });
}
FARTHING_INLINE Lanes largest_of_rows(const float* rows, int32_t count) {
  return join_rows(rows, count, [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); });
}

FARTHING_INLINE IntLanes broadcast_int(uint32_t x) {
  const __m256i all = _mm256_set1_epi32(static_cast<int32_t>(x));
  return {all, all};
}
FARTHING_INLINE IntLanes iota() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
          _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
FARTHING_INLINE IntLanes load_ints(const uint32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
FARTHING_INLINE void store_ints(uint32_t* p, IntLanes x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.high);
}
FARTHING_INLINE void store_bytes(int8_t* p, IntLanes x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.low, x.high), 0xd8);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p),
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
FARTHING_INLINE IntLanes operator+(IntLanes a, IntLanes b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
FARTHING_INLINE IntLanes operator-(IntLanes a, IntLanes b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
FARTHING_INLINE IntLanes operator&(IntLanes a, IntLanes b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
FARTHING_INLINE IntLanes operator|(IntLanes a, IntLanes b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
FARTHING_INLINE IntLanes operator^(IntLanes a, IntLanes b) {
  return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
}
template <int kBits>
FARTHING_INLINE IntLanes shift_left(IntLanes x) {
  return {_mm256_slli_epi32(x.low, kBits), _mm256_slli_epi32(x.high, kBits)};
}
template <int kBits>
FARTHING_INLINE IntLanes shift_right(IntLanes x) {
  return {_mm256_srli_epi32(x.low, kBits), _mm256_srli_epi32(x.high, kBits)};
}
template <int kBits>
FARTHING_INLINE IntLanes shift_right_signed(IntLanes x) {
  return {_mm256_srai_epi32(x.low, kBits), _mm256_srai_epi32(x.high, kBits)};
}
FARTHING_INLINE void multiply_wide(__m256i a, __m256i b, __m256i& high, __m256i& low) {
  const __m256i even = _mm256_mul_epu32(a, b);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
FARTHING_INLINE void multiply_wide(IntLanes a, uint32_t b, IntLanes& high, IntLanes& low) {
  const __m256i factor = _mm256_set1_epi32(static_cast<int32_t>(b));
  multiply_wide(a.low, factor, high.low, low.low);
  multiply_wide(a.high, factor, high.high, low.high);
}

FARTHING_INLINE IntLanes as_int(Lanes x) {
  return {_mm256_castps_si256(x.low), _mm256_castps_si256(x.high)};
}
FARTHING_INLINE Lanes as_float(IntLanes x) {
  return {_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)};
}
FARTHING_INLINE IntLanes round_to_int(Lanes x) {
  return {_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)};
}
FARTHING_INLINE Lanes to_float(IntLanes x) {
  return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)};
}
FARTHING_INLINE Lanes look_up(Lanes table, IntLanes index) {
  const auto eight = [&](__m256i i) {
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(i, 28));  // by the sign: bit 3
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, i),
                            _mm256_permutevar8x32_ps(table.high, i), upper);
  };
  return {eight(index.low), eight(index.high)};
}

FARTHING_INLINE Mask less(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
}
FARTHING_INLINE Mask not_less(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_NLT_UQ), _mm256_cmp_ps(a.high, b.high, _CMP_NLT_UQ)};
}
FARTHING_INLINE Mask equal(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_EQ_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_EQ_OQ)};
}
FARTHING_INLINE Mask unordered(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_UNORD_Q), _mm256_cmp_ps(a.high, b.high, _CMP_UNORD_Q)};
}
FARTHING_INLINE Mask operator|(Mask a, Mask b) {
  return {_mm256_or_ps(a.low, b.low), _mm256_or_ps(a.high, b.high)};
}
FARTHING_INLINE Mask and_not(Mask excluded, Mask a) {
  return {_mm256_andnot_ps(excluded.low, a.low), _mm256_andnot_ps(excluded.high, a.high)};
}
FARTHING_INLINE Lanes select(Mask mask, Lanes yes, Lanes no) {
  return {_mm256_blendv_ps(no.low, yes.low, mask.low),
          _mm256_blendv_ps(no.high, yes.high, mask.high)};
}
FARTHING_INLINE Lanes keep(Mask mask, Lanes x) {
  return {_mm256_and_ps(mask.low, x.low), _mm256_and_ps(mask.high, x.high)};
}
FARTHING_INLINE Lanes look_up_eight(Lanes table, IntLanes index) {
  return {_mm256_permutevar8x32_ps(table.low, index.low),
          _mm256_permutevar8x32_ps(table.low, index.high)};
}
FARTHING_INLINE IntLanes increment(Mask mask, IntLanes x) {
  return {_mm256_sub_epi32(x.low, _mm256_castps_si256(mask.low)),
          _mm256_sub_epi32(x.high, _mm256_castps_si256(mask.high))};
}
FARTHING_INLINE uint32_t mask_bits(Mask mask) {  // bit i is lane i
  return static_cast<uint32_t>(_mm256_movemask_ps(mask.low)) |
         static_cast<uint32_t>(_mm256_movemask_ps(mask.high)) << 8;
}
FARTHING_INLINE Mask mask_of(uint32_t bits) {
  const __m256i all = _mm256_set1_epi32(static_cast<int32_t>(bits));
  const __m256i low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i high = _mm256_slli_epi32(low, 8);
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, low), low)),
          _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, high), high))};
}

}  // namespace farthing::FARTHING_ISA
