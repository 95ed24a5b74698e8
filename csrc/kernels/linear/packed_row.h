// Reading single rows of a packed row block, element by element: the meaning of the layout in code.
// Compiled once in every instruction set's file, in that set's namespace.
#pragma once

#include <bit>

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

inline uint16_t load_half(const uint8_t* p) {
  uint16_t v;
  __builtin_memcpy(&v, p, 2);
  return v;
}

inline uint32_t load_word(const uint8_t* p) {
  uint32_t v;
  __builtin_memcpy(&v, p, 4);
  return v;
}

// One row of one row block.
struct PackedRow {
  const uint8_t* block;
  const SchemeTraits& traits;
  Scheme scheme;
  int lane;
  const int8_t* codebook;

  float element(int column) const {
    const size_t index = static_cast<size_t>(column) * kLanes + static_cast<size_t>(lane);
    if (scheme == Scheme::f16) return half_to_float(load_half(block + 2 * index));
    if (scheme == Scheme::bf16)
      return std::bit_cast<float>(static_cast<uint32_t>(load_half(block + 2 * index)) << 16);
    float v;
    __builtin_memcpy(&v, block + 4 * index, 4);
    return v;
  }

  const uint8_t* line(int group) const { return block + scale_line_offset(traits, group); }
  const uint8_t* unit(int group) const { return block + unit_offset(traits, group * traits.group); }

  // The quad of columns col.. as four bytes: unsigned codes, or signed ones of 8 bits.
  uint32_t quad(int col) const {
    const uint8_t* span = block + span_offset(traits, col) + 4 * lane;
    const int q = col % kSpanCols / 4;
    if (traits.code_bits == 8) return load_word(span + kLineBytes * q);
    uint32_t codes = (load_word(span + kLineBytes * (q / 2)) >> (q % 2 * 4)) & 0x0f0f0f0f;
    if (traits.code_bits == 5)
      codes |= ((load_word(span + kLineBytes * 4) >> q) & 0x01010101) << 4;
    if (traits.code_bits == 6)
      codes |= ((load_word(span + kLineBytes * (4 + q / 4)) >> (q % 4 * 2)) & 0x03030303) << 4;
    return codes;
  }

  // Value of column j of a quad.
  int value(uint32_t codes, int j) const {
    const uint8_t byte = static_cast<uint8_t>(codes >> (8 * j));
    if (traits.codebook) return codebook[byte];
    return traits.code_bits == 8 ? static_cast<int8_t>(byte) : byte - traits.zero;
  }

  float scale(int group) const {
    const int slot = group % traits.chunk_groups;
    return half_to_float(load_half(line(group) + 2 * (kLanes * slot + lane)));
  }
  float minimum(int group) const {
    return half_to_float(load_half(line(group) + 2 * (kLanes + lane)));
  }

  // Integer scale of sub-block j of a group, and its minimum (q4_k, q5_k).
  int sub_scale(int group, int j) const {
    const uint8_t* sub = unit(group) + lane;
    if (!traits.minimum) return static_cast<int8_t>(sub[kLanes * j]);
    const int high = sub[kLanes * (8 + j % 4)] >> (j / 4 * 4);
    return (sub[kLanes * j] & 15) | (high & 3) << 4;
  }
  int sub_minimum(int group, int j) const {
    const uint8_t* sub = unit(group) + lane;
    const int high = sub[kLanes * (8 + j % 4)] >> (j / 4 * 4 + 2);
    return sub[kLanes * j] >> 4 | (high & 3) << 4;
  }
};

inline PackedRow packed_row(const MatrixView& w, int32_t row) {
  return {w.data + static_cast<size_t>(row / kLanes) * w.row_block_bytes, scheme_traits(w.scheme),
          w.scheme, row % kLanes, w.codebook};
}

// In the order of operations of the checkpoint format's own dequantization.
inline void dequantize_row(const MatrixView& w, int32_t index, float* out) {
  const PackedRow row = packed_row(w, index);
  const SchemeTraits& traits = row.traits;
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
    const int32_t end = w.cols - first < run ? w.cols : first + run;
    for (int32_t k = first; k < end; k += 4) {
      const uint32_t codes = row.quad(k);
      for (int j = 0; j < 4 && k + j < end; ++j) {
        const float value = scale * static_cast<float>(row.value(codes, j));
        out[k + j] = traits.minimum ? value + minimum : value;
      }
    }
    if (end == w.cols) return;
  }
}

}  // namespace farthing::FARTHING_ISA
