// Reading single rows of a packed row block, element by element: the meaning of the layout in code.
// Compiled once in every instruction set's file, in that set's namespace.
#pragma once

#include <bit>
#include <cstring>

#include "kernels/linear/layout.h"

namespace farthing::FARTHING_ISA {

inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 31) {  // infinity or NaN; a signalling NaN becomes quiet, as hardware does
    const uint32_t quiet = mantissa != 0 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | mantissa << 13);
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

// One row of one row block.
struct PackedRow {
  const uint8_t* block;
  RowBlockLayout layout;
  Scheme scheme;
  int lane;

  const SchemeTraits& traits() const { return kTraits[static_cast<int>(scheme)]; }

  uint16_t half_at(size_t offset) const {
    uint16_t v;
    std::memcpy(&v, block + offset, 2);
    return v;
  }

  float element(int column) const {
    const size_t index = static_cast<size_t>(column) * kLanes + static_cast<size_t>(lane);
    if (scheme == Scheme::f16) return half_to_float(half_at(2 * index));
    if (scheme == Scheme::bf16)
      return std::bit_cast<float>(static_cast<uint32_t>(half_at(2 * index)) << 16);
    float v;
    std::memcpy(&v, block + 4 * index, 4);
    return v;
  }

  // code - zero of a column.
  int code(int column) const {
    const int quad = column / 4;
    const int position = lane * 4 + column % 4;
    const int bits = traits().code_bits;
    if (bits == 8) return static_cast<int8_t>(block[quad * kQuadBytes + position]);
    int value = (block[quad / 2 * 64 + position] >> (quad % 2 * 4)) & 15;
    const uint8_t* high = block + layout.high;
    if (bits == 5) value |= ((high[quad / 8 * 64 + position] >> quad % 8) & 1) << 4;
    if (bits == 6) value |= ((high[quad / 4 * 64 + position] >> quad % 4 * 2) & 3) << 4;
    return value - traits().zero;
  }

  float scale(int group) const {
    const size_t line = static_cast<size_t>(group) * (traits().minimum ? 2 : 1);
    return half_to_float(half_at(layout.scales + 2 * (kLanes * line + static_cast<size_t>(lane))));
  }
  float minimum(int group) const {
    const size_t line = static_cast<size_t>(group) * 2 + 1;
    return half_to_float(half_at(layout.scales + 2 * (kLanes * line + static_cast<size_t>(lane))));
  }

  // Integer scale of sub-block j of a super-block, and its minimum (q4_k, q5_k).
  int sub_scale(int super, int j) const {
    const uint8_t* sub = block + layout.sub + lane;
    if (scheme == Scheme::q6_k)
      return static_cast<int8_t>(sub[kSubScaleBytesQ6K * super + kLanes * j]);
    sub += kSubScaleBytesQ4K * super;
    const int high = sub[kLanes * (8 + j % 4)] >> (j / 4 * 4);
    return (sub[kLanes * j] & 15) | (high & 3) << 4;
  }
  int sub_minimum(int super, int j) const {
    const uint8_t* sub = block + layout.sub + kSubScaleBytesQ4K * super + lane;
    const int high = sub[kLanes * (8 + j % 4)] >> (j / 4 * 4 + 2);
    return sub[kLanes * j] >> 4 | (high & 3) << 4;
  }
};

inline PackedRow packed_row(const MatrixView& w, int32_t row) {
  return {w.data + static_cast<size_t>(row / kLanes) * w.row_block_bytes,
          row_block_layout(w.scheme, w.cols), w.scheme, row % kLanes};
}

// In the order of operations of the checkpoint format's own dequantization.
inline void dequantize_row(const MatrixView& w, int32_t index, float* out) {
  const PackedRow row = packed_row(w, index);
  const SchemeTraits& traits = row.traits();
  if (traits.group == 0) {
    for (int32_t k = 0; k < w.cols; ++k) out[k] = row.element(k);
    return;
  }
  const int run = traits.sub_cols != 0 ? traits.sub_cols : traits.group;
  for (int32_t first = 0; first < w.cols; first += run) {
    const int group = first / traits.group;
    float scale = row.scale(group);
    float minimum = traits.minimum ? row.minimum(group) : 0.0f;
    if (traits.sub_cols != 0) {
      const int j = first % traits.group / run;
      scale = scale * static_cast<float>(row.sub_scale(group, j));
      if (traits.minimum) minimum = -(minimum * static_cast<float>(row.sub_minimum(group, j)));
    }
    for (int k = first; k < first + run; ++k) {
      const float value = scale * static_cast<float>(row.code(k));
      out[k] = traits.minimum ? value + minimum : value;
    }
  }
}

}  // namespace farthing::FARTHING_ISA
