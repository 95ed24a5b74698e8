// Lanes as four 128-bit registers.
#pragma once

#include <arm_neon.h>

namespace farthing::FARTHING_ISA {

struct Lanes {
  float32x4_t v[4];
};
struct IntLanes {
  uint32x4_t v[4];
};
struct Mask {  // all ones or all zeros per lane
  uint32x4_t v[4];
};

// Register tiles of attention: most vectors, columns of 16 values and blocks of keys for so many.
// 32 registers hold four for each accumulator, four for a load and one for each broadcast.
inline constexpr int kRegisterRows = 5;
inline constexpr int register_columns(int vectors) {
  return vectors == 1 ? 4 : (vectors == 2 ? 2 : 1);
}
inline constexpr int register_blocks(int vectors) { return register_columns(vectors); }

#define FARTHING_EACH_QUARTER _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i)

FARTHING_INLINE uint32x4_t quarter_iota(int quarter) {
  alignas(16) static constexpr uint32_t kIota[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                     8, 9, 10, 11, 12, 13, 14, 15};
  return vld1q_u32(kIota + 4 * quarter);
}

FARTHING_INLINE Mask first_lanes(int32_t count) {
  const int32x4_t n = vdupq_n_s32(count);
  Mask r;
  FARTHING_EACH_QUARTER r.v[i] = vcgtq_s32(n, vreinterpretq_s32_u32(quarter_iota(i)));
  return r;
}

FARTHING_INLINE Lanes broadcast(float x) {
  const float32x4_t all = vdupq_n_f32(x);
  return {{all, all, all, all}};
}
FARTHING_INLINE Lanes load(const float* p) {
  Lanes r;
  FARTHING_EACH_QUARTER r.v[i] = vld1q_f32(p + 4 * i);
  return r;
}
FARTHING_INLINE Lanes load(const Half* p) {
  Lanes r;
  FARTHING_EACH_QUARTER r.v[i] =
      vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p) + 4 * i)));
  return r;
}
FARTHING_INLINE Lanes from_bytes(int8x16_t bytes) {
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  const auto four = [](int16x4_t x) { return vcvtq_f32_s32(vmovl_s16(x)); };
  return {{four(vget_low_s16(low)), four(vget_high_s16(low)), four(vget_low_s16(high)),
           four(vget_high_s16(high))}};
}
FARTHING_INLINE Lanes load(const int8_t* p) { return from_bytes(vld1q_s8(p)); }
FARTHING_INLINE Lanes load_nibbles(const uint8_t* p) {
  alignas(16) static constexpr int32_t kToTheTop[16] = {28, 28, 24, 24, 20, 20, 16, 16,
                                                        12, 12, 8,  8,  4,  4,  0,  0};
  const uint8x8_t bits = vld1_u8(p);
  const uint32x4_t words = vreinterpretq_u32_u8(vcombine_u8(bits, bits));
  Lanes r;
  FARTHING_EACH_QUARTER {
    const uint32x4_t top = vshlq_u32(words, vld1q_s32(kToTheTop + 4 * i));
    r.v[i] = vcvtq_f32_s32(vshrq_n_s32(vreinterpretq_s32_u32(top), 28));
  }
  return r;
}
FARTHING_INLINE void load_nibble_pairs(const uint8_t* p, Lanes& low, Lanes& high) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
  low = from_bytes(vshrq_n_s8(vshlq_n_s8(bytes, 4), 4));
  high = from_bytes(vshrq_n_s8(bytes, 4));
}
FARTHING_INLINE Lanes load_first(const float* p, int32_t count) {
  alignas(16) float all[16] = {};
  for (int32_t i = 0; i < count; ++i) all[i] = p[i];
  return load(all);
}
FARTHING_INLINE void store(float* p, Lanes x) {
  FARTHING_EACH_QUARTER vst1q_f32(p + 4 * i, x.v[i]);
}
FARTHING_INLINE void store(Half* p, Lanes x) {
  FARTHING_EACH_QUARTER vst1_u16(reinterpret_cast<uint16_t*>(p) + 4 * i,
                                 vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
}
FARTHING_INLINE void store_first(float* p, int32_t count, Lanes x) {
  alignas(16) float all[16];
  store(all, x);
  for (int32_t i = 0; i < count; ++i) p[i] = all[i];
}

FARTHING_INLINE Lanes operator+(Lanes a, Lanes b) {
  FARTHING_EACH_QUARTER a.v[i] = vaddq_f32(a.v[i], b.v[i]);
  return a;
}
FARTHING_INLINE Lanes operator-(Lanes a, Lanes b) {
  FARTHING_EACH_QUARTER a.v[i] = vsubq_f32(a.v[i], b.v[i]);
  return a;
}
FARTHING_INLINE Lanes operator*(Lanes a, Lanes b) {
  FARTHING_EACH_QUARTER a.v[i] = vmulq_f32(a.v[i], b.v[i]);
  return a;
}
FARTHING_INLINE Lanes operator/(Lanes a, Lanes b) {
  FARTHING_EACH_QUARTER a.v[i] = vdivq_f32(a.v[i], b.v[i]);
  return a;
}
FARTHING_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) {
  FARTHING_EACH_QUARTER c.v[i] = vfmaq_f32(c.v[i], a.v[i], b.v[i]);
  return c;
}
// Not vmaxq: that gives NaN when only the first operand is one.
FARTHING_INLINE float32x4_t greater_of(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
FARTHING_INLINE Lanes maximum(Lanes a, Lanes b) {
  FARTHING_EACH_QUARTER b.v[i] = greater_of(a.v[i], b.v[i]);
  return b;
}
FARTHING_INLINE Lanes minimum(Lanes a, Lanes b) {
  FARTHING_EACH_QUARTER b.v[i] = vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]);
  return b;
}

// Lanes 8 apart, then 4, 2 and 1, by `join`.
template <class Join>
FARTHING_INLINE float join_lanes(Lanes x, Join join) {
  const float32x4_t four = join(join(x.v[0], x.v[2]), join(x.v[1], x.v[3]));
  const float32x4_t two = join(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(join(two, vdupq_laneq_f32(two, 1)), 0);
}
FARTHING_INLINE float sum(Lanes x) {
  return join_lanes(x, [](float32x4_t a, float32x4_t b) { return vaddq_f32(a, b); });
}
FARTHING_INLINE float largest(Lanes x) {
  return join_lanes(x, [](float32x4_t a, float32x4_t b) { return greater_of(a, b); });
}

// Joins four rows of 16 in the same order; lane i is row i's result.
template <class Join>
FARTHING_INLINE float32x4_t join_four_rows(const float* rows, Join join) {
  float32x4_t four[4];
  FARTHING_EACH_QUARTER {
    const Lanes x = load(rows + 16 * i);
    four[i] = join(join(x.v[0], x.v[2]), join(x.v[1], x.v[3]));
  }
  const auto lower = [](float32x4_t a, float32x4_t b) {
    return vcombine_f32(vget_low_f32(a), vget_low_f32(b));
  };
  const auto upper = [](float32x4_t a, float32x4_t b) {
    return vcombine_f32(vget_high_f32(a), vget_high_f32(b));
  };
  const float32x4_t first = join(lower(four[0], four[1]), upper(four[0], four[1]));
  const float32x4_t second = join(lower(four[2], four[3]), upper(four[2], four[3]));
  return join(vuzp1q_f32(first, second), vuzp2q_f32(first, second));
}
template <class Join>
FARTHING_INLINE Lanes join_rows(const float* rows, int32_t count, Join join) {
  Lanes r = broadcast(0.0f);
  FARTHING_EACH_QUARTER if (count > 4 * i) r.v[i] = join_four_rows(rows + 64 * i, join);
  return r;
}
// Lane i: sum or largest of the 16 floats at rows + 16 * i, for i < count; other lanes anything.
// All 16 rows must be readable.
FARTHING_INLINE Lanes sum_of_rows(const float* rows, int32_t count) {
  return join_rows(rows, count, [](float32x4_t a, float32x4_t b) { return vaddq_f32(a, b); });
}
FARTHING_INLINE Lanes largest_of_rows(const float* rows, int32_t count) {
  return join_rows(rows, count, [](float32x4_t a, float32x4_t b) { return greater_of(a, b); });
}

FARTHING_INLINE IntLanes broadcast_int(uint32_t x) {
  const uint32x4_t all = vdupq_n_u32(x);
  return {{all, all, all, all}};
}
FARTHING_INLINE IntLanes iota() {
  return {{quarter_iota(0), quarter_iota(1), quarter_iota(2), quarter_iota(3)}};
}
FARTHING_INLINE IntLanes load_ints(const uint32_t* p) {
  IntLanes r;
  FARTHING_EACH_QUARTER r.v[i] = vld1q_u32(p + 4 * i);
  return r;
}
FARTHING_INLINE void store_ints(uint32_t* p, IntLanes x) {
  FARTHING_EACH_QUARTER vst1q_u32(p + 4 * i, x.v[i]);
}
FARTHING_INLINE void store_bytes(int8_t* p, IntLanes x) {
  const auto narrow = [](uint32x4_t low, uint32x4_t high) {
    return vcombine_u16(vmovn_u32(low), vmovn_u32(high));
  };
  const uint8x16_t bytes = vcombine_u8(vmovn_u16(narrow(x.v[0], x.v[1])),
                                       vmovn_u16(narrow(x.v[2], x.v[3])));
  vst1q_s8(p, vreinterpretq_s8_u8(bytes));
}
FARTHING_INLINE IntLanes operator+(IntLanes a, IntLanes b) {
  FARTHING_EACH_QUARTER a.v[i] = vaddq_u32(a.v[i], b.v[i]);
  return a;
}
FARTHING_INLINE IntLanes operator-(IntLanes a, IntLanes b) {
  FARTHING_EACH_QUARTER a.v[i] = vsubq_u32(a.v[i], b.v[i]);
  return a;
}
FARTHING_INLINE IntLanes operator&(IntLanes a, IntLanes b) {
  FARTHING_EACH_QUARTER a.v[i] = vandq_u32(a.v[i], b.v[i]);
  return a;
}
FARTHING_INLINE IntLanes operator|(IntLanes a, IntLanes b) {
  FARTHING_EACH_QUARTER a.v[i] = vorrq_u32(a.v[i], b.v[i]);
  return a;
}
FARTHING_INLINE IntLanes operator^(IntLanes a, IntLanes b) {
  FARTHING_EACH_QUARTER a.v[i] = veorq_u32(a.v[i], b.v[i]);
  return a;
}
template <int kBits>
FARTHING_INLINE IntLanes shift_left(IntLanes x) {
  FARTHING_EACH_QUARTER x.v[i] = vshlq_n_u32(x.v[i], kBits);
  return x;
}
template <int kBits>
FARTHING_INLINE IntLanes shift_right(IntLanes x) {
  FARTHING_EACH_QUARTER x.v[i] = vshrq_n_u32(x.v[i], kBits);
  return x;
}
template <int kBits>
FARTHING_INLINE IntLanes shift_right_signed(IntLanes x) {
  FARTHING_EACH_QUARTER x.v[i] =
      vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(x.v[i]), kBits));
  return x;
}
// 32 x 32 bit products: upper and lower words.
FARTHING_INLINE void multiply_wide(IntLanes a, uint32_t b, IntLanes& high, IntLanes& low) {
  const uint32x2_t factor = vdup_n_u32(b);
  FARTHING_EACH_QUARTER {
    const uint32x4_t first = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(a.v[i]), factor));
    const uint32x4_t second = vreinterpretq_u32_u64(vmull_u32(vget_high_u32(a.v[i]), factor));
    low.v[i] = vuzp1q_u32(first, second);
    high.v[i] = vuzp2q_u32(first, second);
  }
}

FARTHING_INLINE IntLanes as_int(Lanes x) {
  IntLanes r;
  FARTHING_EACH_QUARTER r.v[i] = vreinterpretq_u32_f32(x.v[i]);
  return r;
}
FARTHING_INLINE Lanes as_float(IntLanes x) {
  Lanes r;
  FARTHING_EACH_QUARTER r.v[i] = vreinterpretq_f32_u32(x.v[i]);
  return r;
}
FARTHING_INLINE IntLanes round_to_int(Lanes x) {
  IntLanes r;
  FARTHING_EACH_QUARTER r.v[i] = vreinterpretq_u32_s32(vcvtnq_s32_f32(x.v[i]));
  return r;
}
FARTHING_INLINE Lanes to_float(IntLanes x) {
  Lanes r;
  FARTHING_EACH_QUARTER r.v[i] = vcvtq_f32_s32(vreinterpretq_s32_u32(x.v[i]));
  return r;
}
FARTHING_INLINE Lanes look_up(Lanes table, IntLanes index) {
  uint8x16x4_t bytes;
  FARTHING_EACH_QUARTER bytes.val[i] = vreinterpretq_u8_f32(table.v[i]);
  Lanes r;
  FARTHING_EACH_QUARTER {
    const uint32x4_t four = vandq_u32(index.v[i], vdupq_n_u32(15));
    const uint32x4_t places = vmlaq_u32(vdupq_n_u32(0x03020100), four, vdupq_n_u32(0x04040404));
    r.v[i] = vreinterpretq_f32_u8(vqtbl4q_u8(bytes, vreinterpretq_u8_u32(places)));
  }
  return r;
}

FARTHING_INLINE Mask less(Lanes a, Lanes b) {
  Mask r;
  FARTHING_EACH_QUARTER r.v[i] = vcltq_f32(a.v[i], b.v[i]);
  return r;
}
FARTHING_INLINE Mask not_less(Lanes a, Lanes b) {
  Mask r;
  FARTHING_EACH_QUARTER r.v[i] = vmvnq_u32(vcltq_f32(a.v[i], b.v[i]));
  return r;
}
FARTHING_INLINE Mask equal(Lanes a, Lanes b) {
  Mask r;
  FARTHING_EACH_QUARTER r.v[i] = vceqq_f32(a.v[i], b.v[i]);
  return r;
}
FARTHING_INLINE Mask unordered(Lanes a, Lanes b) {
  Mask r;
  FARTHING_EACH_QUARTER r.v[i] =
      vmvnq_u32(vandq_u32(vceqq_f32(a.v[i], a.v[i]), vceqq_f32(b.v[i], b.v[i])));
  return r;
}
FARTHING_INLINE Mask operator|(Mask a, Mask b) {
  FARTHING_EACH_QUARTER a.v[i] = vorrq_u32(a.v[i], b.v[i]);
  return a;
}
FARTHING_INLINE Mask and_not(Mask excluded, Mask a) {
  FARTHING_EACH_QUARTER a.v[i] = vbicq_u32(a.v[i], excluded.v[i]);
  return a;
}
FARTHING_INLINE Lanes select(Mask mask, Lanes yes, Lanes no) {
  FARTHING_EACH_QUARTER no.v[i] = vbslq_f32(mask.v[i], yes.v[i], no.v[i]);
  return no;
}
FARTHING_INLINE Lanes keep(Mask mask, Lanes x) {
  FARTHING_EACH_QUARTER x.v[i] =
      vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x.v[i]), mask.v[i]));
  return x;
}
FARTHING_INLINE uint32x4_t quarter_bits(int quarter) {
  return vshlq_u32(vdupq_n_u32(1), vreinterpretq_s32_u32(quarter_iota(quarter)));
}
FARTHING_INLINE Lanes look_up_eight(Lanes table, IntLanes index) { return look_up(table, index); }
FARTHING_INLINE IntLanes increment(Mask mask, IntLanes x) {
  FARTHING_EACH_QUARTER x.v[i] = vsubq_u32(x.v[i], mask.v[i]);
  return x;
}
FARTHING_INLINE uint32_t mask_bits(Mask mask) {  // bit i is lane i
  uint32_t bits = 0;
  FARTHING_EACH_QUARTER bits |= vaddvq_u32(vandq_u32(mask.v[i], quarter_bits(i)));
  return bits;
}
FARTHING_INLINE Mask mask_of(uint32_t bits) {
  Mask r;
  FARTHING_EACH_QUARTER r.v[i] = vtstq_u32(vdupq_n_u32(bits), quarter_bits(i));
  return r;
}

#undef FARTHING_EACH_QUARTER

}  // namespace farthing::FARTHING_ISA
