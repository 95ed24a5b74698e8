// Lanes as plain loops: what the other instruction sets must equal bit for bit.
#pragma once

#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace farthing::FARTHING_ISA {

struct Lanes {
  float v[16];
};
struct IntLanes {
  uint32_t v[16];
};
struct Mask {
  bool v[16];
};

// Register tiles of attention: most vectors, columns of 16 values and blocks of keys for so many.
inline constexpr int kRegisterRows = 4;
inline constexpr int register_columns(int) { return 1; }
inline constexpr int register_blocks(int) { return 1; }

#define FARTHING_EACH_LANE for (int i = 0; i < 16; ++i)

#if defined(__F16C__)
FARTHING_INLINE float from_half(uint16_t bits) { return _cvtsh_ss(bits); }
FARTHING_INLINE uint16_t to_half(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
#else
FARTHING_INLINE float from_half(uint16_t bits) { return __builtin_bit_cast(__fp16, bits); }
FARTHING_INLINE uint16_t to_half(float x) {
  return __builtin_bit_cast(uint16_t, static_cast<__fp16>(x));
}
#endif

FARTHING_INLINE Lanes broadcast(float x) {
  Lanes r;
  FARTHING_EACH_LANE r.v[i] = x;
  return r;
}
FARTHING_INLINE Lanes load(const float* p) {
  Lanes r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
FARTHING_INLINE Lanes load(const Half* p) {
  Lanes r;
  FARTHING_EACH_LANE r.v[i] = from_half(p[i].bits);
  return r;
}
FARTHING_INLINE Lanes load(const int8_t* p) {
  Lanes r;
  FARTHING_EACH_LANE r.v[i] = static_cast<float>(p[i]);
  return r;
}
FARTHING_INLINE float from_nibble(int bits) { return static_cast<float>(((bits & 15) ^ 8) - 8); }
FARTHING_INLINE Lanes load_nibbles(const uint8_t* p) {
  Lanes r;
  FARTHING_EACH_LANE r.v[i] = from_nibble(p[4 * (i & 1) + (i >> 2)] >> (i & 2) * 2);
  return r;
}
FARTHING_INLINE void load_nibble_pairs(const uint8_t* p, Lanes& low, Lanes& high) {
  FARTHING_EACH_LANE {
    low.v[i] = from_nibble(p[i]);
    high.v[i] = from_nibble(p[i] >> 4);
  }
}
FARTHING_INLINE Lanes load_first(const float* p, int32_t count) {
  Lanes r;
  FARTHING_EACH_LANE r.v[i] = i < count ? p[i] : 0.0f;
  return r;
}
FARTHING_INLINE void store(float* p, Lanes x) { std::memcpy(p, x.v, sizeof x.v); }
FARTHING_INLINE void store(Half* p, Lanes x) {
  FARTHING_EACH_LANE p[i].bits = to_half(x.v[i]);
}
FARTHING_INLINE void store_first(float* p, int32_t count, Lanes x) {
  for (int i = 0; i < count; ++i) p[i] = x.v[i];
}

FARTHING_INLINE Lanes operator+(Lanes a, Lanes b) {
  FARTHING_EACH_LANE a.v[i] = a.v[i] + b.v[i];
  return a;
}
FARTHING_INLINE Lanes operator-(Lanes a, Lanes b) {
  FARTHING_EACH_LANE a.v[i] = a.v[i] - b.v[i];
  return a;
}
FARTHING_INLINE Lanes operator*(Lanes a, Lanes b) {
  FARTHING_EACH_LANE a.v[i] = a.v[i] * b.v[i];
  return a;
}
FARTHING_INLINE Lanes operator/(Lanes a, Lanes b) {
  FARTHING_EACH_LANE a.v[i] = a.v[i] / b.v[i];
  return a;
}
FARTHING_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) {
  FARTHING_EACH_LANE c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
}
FARTHING_INLINE Lanes maximum(Lanes a, Lanes b) {
  FARTHING_EACH_LANE b.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return b;
}
FARTHING_INLINE Lanes minimum(Lanes a, Lanes b) {
  FARTHING_EACH_LANE b.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return b;
}
FARTHING_INLINE float sum(Lanes x) {
  for (int apart = 8; apart > 0; apart /= 2)
    for (int i = 0; i < apart; ++i) x.v[i] = x.v[i] + x.v[i + apart];
  return x.v[0];
}
FARTHING_INLINE float largest(Lanes x) {
  for (int apart = 8; apart > 0; apart /= 2)
    for (int i = 0; i < apart; ++i)
      x.v[i] = x.v[i] > x.v[i + apart] ? x.v[i] : x.v[i + apart];
  return x.v[0];
}

// Lane i: sum or largest of the 16 floats at rows + 16 * i, for i < count; other lanes anything.
// All 16 rows must be readable.
FARTHING_INLINE Lanes sum_of_rows(const float* rows, int32_t count) {
  Lanes r = broadcast(0.0f);
  for (int i = 0; i < count; ++i) r.v[i] = sum(load(rows + 16 * i));
  return r;
}
FARTHING_INLINE Lanes largest_of_rows(const float* rows, int32_t count) {
  Lanes r = broadcast(0.0f);
  for (int i = 0; i < count; ++i) r.v[i] = largest(load(rows + 16 * i));
  return r;
}

FARTHING_INLINE IntLanes broadcast_int(uint32_t x) {
  IntLanes r;
  FARTHING_EACH_LANE r.v[i] = x;
  return r;
}
FARTHING_INLINE IntLanes iota() {
  IntLanes r;
  FARTHING_EACH_LANE r.v[i] = static_cast<uint32_t>(i);
  return r;
}
FARTHING_INLINE IntLanes load_ints(const uint32_t* p) {
  IntLanes r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
FARTHING_INLINE void store_ints(uint32_t* p, IntLanes x) { std::memcpy(p, x.v, sizeof x.v); }
FARTHING_INLINE void store_bytes(int8_t* p, IntLanes x) {
  FARTHING_EACH_LANE p[i] = static_cast<int8_t>(x.v[i]);
}
FARTHING_INLINE IntLanes operator+(IntLanes a, IntLanes b) {
  FARTHING_EACH_LANE a.v[i] += b.v[i];
  return a;
}
FARTHING_INLINE IntLanes operator-(IntLanes a, IntLanes b) {
  FARTHING_EACH_LANE a.v[i] -= b.v[i];
  return a;
}
FARTHING_INLINE IntLanes operator&(IntLanes a, IntLanes b) {
  FARTHING_EACH_LANE a.v[i] &= b.v[i];
  return a;
}
FARTHING_INLINE IntLanes operator|(IntLanes a, IntLanes b) {
  FARTHING_EACH_LANE a.v[i] |= b.v[i];
  return a;
}
FARTHING_INLINE IntLanes operator^(IntLanes a, IntLanes b) {
  FARTHING_EACH_LANE a.v[i] ^= b.v[i];
  return a;
}
template <int kBits>
FARTHING_INLINE IntLanes shift_left(IntLanes x) {
  FARTHING_EACH_LANE x.v[i] <<= kBits;
  return x;
}
template <int kBits>
FARTHING_INLINE IntLanes shift_right(IntLanes x) {
  FARTHING_EACH_LANE x.v[i] >>= kBits;
  return x;
}
template <int kBits>
FARTHING_INLINE IntLanes shift_right_signed(IntLanes x) {
  FARTHING_EACH_LANE x.v[i] = static_cast<uint32_t>(static_cast<int32_t>(x.v[i]) >> kBits);
  return x;
}
// 32 x 32 bit products: upper and lower words.
FARTHING_INLINE void multiply_wide(IntLanes a, uint32_t b, IntLanes& high, IntLanes& low) {
  FARTHING_EACH_LANE {
    const uint64_t product = static_cast<uint64_t>(a.v[i]) * b;
    high.v[i] = static_cast<uint32_t>(product >> 32);
    low.v[i] = static_cast<uint32_t>(product);
  }
}

// Lane by lane: of a bit cast of all sixteen, gcc 12 for Arm moves loads before the stores.
FARTHING_INLINE IntLanes as_int(Lanes x) {
  IntLanes r;
  FARTHING_EACH_LANE r.v[i] = __builtin_bit_cast(uint32_t, x.v[i]);
  return r;
}
FARTHING_INLINE Lanes as_float(IntLanes x) {
  Lanes r;
  FARTHING_EACH_LANE r.v[i] = __builtin_bit_cast(float, x.v[i]);
  return r;
}
FARTHING_INLINE IntLanes round_to_int(Lanes x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: the sum's last bit is worth one
  IntLanes r;
  FARTHING_EACH_LANE {
    const uint32_t shifted = __builtin_bit_cast(uint32_t, x.v[i] + kShift);
    r.v[i] = x.v[i] == x.v[i] ? shifted - __builtin_bit_cast(uint32_t, kShift) : 0;
  }
  return r;
}
FARTHING_INLINE Lanes to_float(IntLanes x) {
  Lanes r;
  FARTHING_EACH_LANE r.v[i] = static_cast<float>(static_cast<int32_t>(x.v[i]));
  return r;
}
FARTHING_INLINE Lanes look_up(Lanes table, IntLanes index) {
  Lanes r;
  FARTHING_EACH_LANE r.v[i] = table.v[index.v[i] & 15];
  return r;
}

FARTHING_INLINE Mask less(Lanes a, Lanes b) {
  Mask r;
  FARTHING_EACH_LANE r.v[i] = a.v[i] < b.v[i];
  return r;
}
FARTHING_INLINE Mask not_less(Lanes a, Lanes b) {
  Mask r;
  FARTHING_EACH_LANE r.v[i] = !(a.v[i] < b.v[i]);
  return r;
}
FARTHING_INLINE Mask equal(Lanes a, Lanes b) {
  Mask r;
  FARTHING_EACH_LANE r.v[i] = a.v[i] == b.v[i];
  return r;
}
FARTHING_INLINE Mask unordered(Lanes a, Lanes b) {
  Mask r;
  FARTHING_EACH_LANE r.v[i] = !(a.v[i] == a.v[i]) || !(b.v[i] == b.v[i]);
  return r;
}
FARTHING_INLINE Mask first_lanes(int32_t count) {
  Mask r;
  FARTHING_EACH_LANE r.v[i] = i < count;
  return r;
}
FARTHING_INLINE Mask operator|(Mask a, Mask b) {
  FARTHING_EACH_LANE a.v[i] = a.v[i] || b.v[i];
  return a;
}
FARTHING_INLINE Mask and_not(Mask excluded, Mask a) {
  FARTHING_EACH_LANE a.v[i] = a.v[i] && !excluded.v[i];
  return a;
}
FARTHING_INLINE Lanes select(Mask mask, Lanes yes, Lanes no) {
  FARTHING_EACH_LANE no.v[i] = mask.v[i] ? yes.v[i] : no.v[i];
  return no;
}
FARTHING_INLINE Lanes keep(Mask mask, Lanes x) { return select(mask, x, broadcast(0.0f)); }
FARTHING_INLINE Lanes look_up_eight(Lanes table, IntLanes index) { return look_up(table, index); }
FARTHING_INLINE IntLanes increment(Mask mask, IntLanes x) {
  FARTHING_EACH_LANE x.v[i] += mask.v[i];
  return x;
}
FARTHING_INLINE uint32_t mask_bits(Mask mask) {  // bit i is lane i
  uint32_t bits = 0;
  FARTHING_EACH_LANE bits |= static_cast<uint32_t>(mask.v[i]) << i;
  return bits;
}
FARTHING_INLINE Mask mask_of(uint32_t bits) {
  Mask r;
  FARTHING_EACH_LANE r.v[i] = (bits >> i & 1) != 0;
  return r;
}

#undef FARTHING_EACH_LANE

}  // namespace farthing::FARTHING_ISA
