// NEON: the 64 bytes of a quad in four registers. Codes become signed, as SDOT takes them.
#pragma once

#include "core/lanes.h"

namespace farthing::FARTHING_ISA::dots {

inline constexpr bool kSignedCodes = true;
inline constexpr int kTileTokens = 4;

struct Bytes {
  uint8x16_t v[4];
};

#define FARTHING_EACH_QUARTER _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i)

FARTHING_INLINE Bytes load_bytes(const uint8_t* p) {
  Bytes r;
  FARTHING_EACH_QUARTER r.v[i] = vld1q_u8(p + 16 * i);
  return r;
}
FARTHING_INLINE Bytes low_nibbles(Bytes x) {
  FARTHING_EACH_QUARTER x.v[i] = vandq_u8(x.v[i], vdupq_n_u8(15));
  return x;
}
FARTHING_INLINE Bytes high_nibbles(Bytes x) {
  FARTHING_EACH_QUARTER x.v[i] = vshrq_n_u8(x.v[i], 4);
  return x;
}
// low | (high << left & mask), in every byte; `left` may be negative.
FARTHING_INLINE Bytes insert_bits(Bytes low, int left, Bytes high, uint8_t mask) {
  const int8x16_t by = vdupq_n_s8(static_cast<int8_t>(left));
  FARTHING_EACH_QUARTER low.v[i] =
      vorrq_u8(low.v[i], vandq_u8(vshlq_u8(high.v[i], by), vdupq_n_u8(mask)));
  return low;
}
FARTHING_INLINE Bytes less(Bytes x, int zero) {
  FARTHING_EACH_QUARTER x.v[i] = vsubq_u8(x.v[i], vdupq_n_u8(static_cast<uint8_t>(zero)));
  return x;
}

struct Codebook {
  uint8x16_t values;
  explicit Codebook(const int8_t* codebook) : values(vreinterpretq_u8_s8(vld1q_s8(codebook))) {}
};
FARTHING_INLINE Bytes look_up(const Codebook& book, Bytes codes) {
  FARTHING_EACH_QUARTER codes.v[i] = vqtbl1q_u8(book.values, codes.v[i]);
  return codes;
}

// acc + codes (16 rows of four columns) times four activations.
FARTHING_INLINE IntLanes dot(IntLanes acc, Bytes codes, const int8_t* activations) {
  int32_t quad;
  __builtin_memcpy(&quad, activations, 4);
  const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(quad));
  FARTHING_EACH_QUARTER acc.v[i] = vreinterpretq_u32_s32(
      vdotq_s32(vreinterpretq_s32_u32(acc.v[i]), vreinterpretq_s8_u8(codes.v[i]), x));
  return acc;
}
FARTHING_INLINE IntLanes multiply(IntLanes a, IntLanes b) {
  FARTHING_EACH_QUARTER a.v[i] = vmulq_u32(a.v[i], b.v[i]);
  return a;
}
// Sixteen bytes, each to 32 bits.
FARTHING_INLINE IntLanes widen_unsigned(const uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
  return {{vmovl_u16(vget_low_u16(low)), vmovl_u16(vget_high_u16(low)),
           vmovl_u16(vget_low_u16(high)), vmovl_u16(vget_high_u16(high))}};
}
FARTHING_INLINE IntLanes widen_signed(const uint8_t* p) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  const auto wide = [](int16x4_t x) { return vreinterpretq_u32_s32(vmovl_s16(x)); };
  return {{wide(vget_low_s16(low)), wide(vget_high_s16(low)), wide(vget_low_s16(high)),
           wide(vget_high_s16(high))}};
}
// Sixteen bfloat16.
FARTHING_INLINE Lanes load_brain(const uint8_t* p) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(p);
  Lanes r;
  FARTHING_EACH_QUARTER r.v[i] =
      vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(halves + 4 * i), 16));
  return r;
}

#undef FARTHING_EACH_QUARTER

}  // namespace farthing::FARTHING_ISA::dots
