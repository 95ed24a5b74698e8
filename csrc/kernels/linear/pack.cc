// From checkpoint bytes to the packed layout. Runs once a model, in any order, from many threads.
#include <cstring>

#include "kernels/linear/layout.h"
#include "kernels/linear/linear.h"

namespace farthing {
namespace {

size_t round_up_64(size_t n) { return (n + 63) / 64 * 64; }

uint32_t load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

void store32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }

// Four one-bit (or two-bit) fields at distance 1 (2), one to each byte.
uint32_t spread_bits(uint32_t four) { return (four & 15) * 0x00204081u & 0x01010101u; }

// A checkpoint block's codes as quads of this row: byte j of quads[q] is column 4q + j, unsigned.
using Quads = uint32_t[kSuperCols / 4];

// Low nibbles first, then high ones, of 16 bytes (one-level) or 32 bytes (two-level).
template <int kWords>
void read_nibbles(const uint8_t* bytes, uint32_t* quads) {
  for (int j = 0; j < kWords; ++j) {
    const uint32_t word = load32(bytes + 4 * j);
    quads[j] = word & 0x0f0f0f0fu;
    quads[j + kWords] = (word >> 4) & 0x0f0f0f0fu;
  }
}

void add_fifth_bits(const uint8_t* bytes, uint32_t* quads) {
  const uint32_t bits = load32(bytes);
  for (int q = 0; q < 8; ++q) quads[q] |= spread_bits(bits >> (4 * q)) << 4;
}

void read_q5_k(const uint8_t* qs, const uint8_t* qh, uint32_t* quads) {
  for (int c = 0; c < 4; ++c) {
    read_nibbles<8>(qs + 32 * c, quads + 16 * c);
    for (int j = 0; j < 8; ++j) {
      const uint32_t bits = load32(qh + 4 * j) >> (2 * c);
      quads[16 * c + j] |= (bits & 0x01010101u) << 4;
      quads[16 * c + 8 + j] |= ((bits >> 1) & 0x01010101u) << 4;
    }
  }
}

void read_q6_k(const uint8_t* ql, const uint8_t* qh, uint32_t* quads) {
  for (int half = 0; half < 2; ++half) {
    for (int j = 0; j < 8; ++j) {
      const uint32_t first = load32(ql + 64 * half + 4 * j);
      const uint32_t second = load32(ql + 64 * half + 32 + 4 * j);
      const uint32_t bits = load32(qh + 32 * half + 4 * j);
      const uint32_t low[4] = {first, second, first >> 4, second >> 4};
      for (int part = 0; part < 4; ++part)
        quads[32 * half + 8 * part + j] =
            (low[part] & 0x0f0f0f0fu) | ((bits >> (2 * part)) & 0x03030303u) << 4;
    }
  }
}

// Writes one row's share of a span. `to` is at the row's place in the span's first line.
void write_span(int code_bits, const uint32_t* quads, uint8_t* to) {
  for (int i = 0; i < 4; ++i)
    store32(to + kLineBytes * i,
            (quads[2 * i] & 0x0f0f0f0fu) | (quads[2 * i + 1] & 0x0f0f0f0fu) << 4);
  uint32_t high[2] = {0, 0};
  if (code_bits == 5) {
    for (int q = 0; q < 8; ++q) high[0] |= ((quads[q] >> 4) & 0x01010101u) << q;
    store32(to + kLineBytes * 4, high[0]);
  } else if (code_bits == 6) {
    for (int q = 0; q < 8; ++q) high[q / 4] |= ((quads[q] >> 4) & 0x03030303u) << (2 * (q % 4));
    store32(to + kLineBytes * 4, high[0]);
    store32(to + kLineBytes * 5, high[1]);
  }
}

// The checkpoint's 12 bytes of 6-bit scales and minimums, as bytes.
void read_sub_scales(const uint8_t* bytes, uint8_t* scales, uint8_t* minimums) {
  for (int j = 0; j < 4; ++j) {
    const int d = bytes[j], m = bytes[4 + j], mixed = bytes[8 + j];
    scales[j] = static_cast<uint8_t>(d & 63);
    minimums[j] = static_cast<uint8_t>(m & 63);
    scales[4 + j] = static_cast<uint8_t>((mixed & 15) | ((d >> 2) & 0x30));
    minimums[4 + j] = static_cast<uint8_t>((mixed >> 4) | ((m >> 2) & 0x30));
  }
}

void write_sub_scales(const uint8_t* scales, const uint8_t* minimums, uint8_t* sub) {
  for (int j = 0; j < 8; ++j)
    sub[kLanes * j] = static_cast<uint8_t>((scales[j] & 15) | (minimums[j] & 15) << 4);
  for (int j = 0; j < 4; ++j)
    sub[kLanes * (8 + j)] = static_cast<uint8_t>(
        (scales[j] >> 4) | (minimums[j] >> 4) << 2 | (scales[j + 4] >> 4) << 4 |
        (minimums[j + 4] >> 4) << 6);
}

// One checkpoint block of 32 columns. unit: start of the block's unit; scales: of its scales.
void pack_one_level(const SchemeTraits& traits, const uint8_t* source, size_t lane, uint8_t* unit,
                    uint8_t* scales) {
  std::memcpy(scales + 2 * lane, source, 2);
  source += 2;
  if (traits.minimum) {
    std::memcpy(scales + 2 * (kLanes + lane), source, 2);
    source += 2;
  }
  uint8_t* span = unit + 4 * lane;
  if (traits.code_bits == 8) {
    for (int q = 0; q < 8; ++q) std::memcpy(span + kLineBytes * q, source + 4 * q, 4);
    return;
  }
  uint32_t quads[kSpanCols / 4];
  if (traits.code_bits == 5) {
    read_nibbles<4>(source + 4, quads);
    add_fifth_bits(source, quads);
  } else {
    read_nibbles<4>(source, quads);
  }
  write_span(traits.code_bits, quads, span);
}

// One checkpoint block of 256 columns.
void pack_two_level(const SchemeTraits& traits, const uint8_t* source, size_t lane, uint8_t* unit,
                    uint8_t* scales) {
  Quads quads;
  if (traits.code_bits == 6) {
    read_q6_k(source, source + 128, quads);
    for (size_t j = 0; j < 16; ++j) unit[kLanes * j + lane] = source[192 + j];
    std::memcpy(scales + 2 * lane, source + 208, 2);
  } else {
    std::memcpy(scales + 2 * lane, source, 2);
    std::memcpy(scales + 2 * (kLanes + lane), source + 2, 2);
    uint8_t sub_scales[8], minimums[8];
    read_sub_scales(source + 4, sub_scales, minimums);
    write_sub_scales(sub_scales, minimums, unit + lane);
    if (traits.code_bits == 5) {
      read_q5_k(source + 48, source + 16, quads);
    } else {
      for (int c = 0; c < 4; ++c) read_nibbles<8>(source + 16 + 32 * c, quads + 16 * c);
    }
  }
  for (int span = 0; span < kSuperCols / kSpanCols; ++span)
    write_span(traits.code_bits, quads + 8 * span,
               unit + traits.sub_bytes + traits.span_bytes * span + 4 * lane);
}

void pack_row(const SchemeTraits& traits, const SchemeInfo& info, int32_t cols,
              const uint8_t* source, size_t lane, uint8_t* block) {
  for (int32_t g = 0; g < cols / traits.group; ++g, source += info.block_bytes) {
    const size_t slot = static_cast<size_t>(g % traits.chunk_groups);
    uint8_t* unit = block + unit_offset(traits, g * traits.group);
    uint8_t* scales = block + scale_line_offset(traits, g) + 2 * kLanes * slot;
    (traits.sub_cols == 0 ? pack_one_level : pack_two_level)(traits, source, lane, unit, scales);
  }
}

// `count` codes of a row into their span; `to` is at the row's place in its first line.
void pack_codes_of_span(const SchemeTraits& traits, const uint8_t* codes, int32_t count,
                        uint8_t* to) {
  alignas(4) uint8_t bytes[kSpanCols] = {};
  std::memcpy(bytes, codes, static_cast<size_t>(count));
  if (traits.code_bits == 8) {  // packed as signed bytes
    for (int32_t k = 0; k < count; ++k) bytes[k] ^= 0x80;
    for (int q = 0; q < 8; ++q) std::memcpy(to + kLineBytes * q, bytes + 4 * q, 4);
    return;
  }
  uint32_t quads[kSpanCols / 4];
  for (int q = 0; q < 8; ++q) quads[q] = load32(bytes + 4 * q);
  write_span(traits.code_bits, quads, to);
}

template <int kBytes>
void pack_elements(int32_t cols, const uint8_t* source, uint8_t* to) {
  for (size_t k = 0; k < static_cast<size_t>(cols); ++k)
    std::memcpy(to + kBytes * kLanes * k, source + kBytes * k, kBytes);
}

}  // namespace

size_t row_block_bytes(Scheme scheme, int32_t cols) {
  const SchemeTraits& t = scheme_traits(scheme);
  const size_t columns = static_cast<size_t>(cols);
  if (t.element_bytes != 0) return round_up_64(columns * kLanes * t.element_bytes);
  const size_t padded = static_cast<size_t>(padded_cols(cols, t.activation_group));
  if (t.group == kWholeRow) return kLineBytes + padded / kSpanCols * t.span_bytes;
  const size_t units = padded / t.unit_cols;
  const size_t full = units / t.chunk_units * t.chunk_bytes;
  return full + (units % t.chunk_units == 0 ? 0 : kLineBytes + t.unit_bytes);
}

void pack_rows(Scheme scheme, int32_t cols, uint8_t* packed, int32_t first_row, int32_t count,
               const uint8_t* source) {
  const SchemeInfo& info = scheme_info(scheme);
  const SchemeTraits& traits = scheme_traits(scheme);
  const size_t block_bytes = row_block_bytes(scheme, cols);
  const size_t source_row = static_cast<size_t>(cols / info.block_cols) * info.block_bytes;
  for (int32_t row = first_row; row < first_row + count; ++row, source += source_row) {
    uint8_t* block = packed + static_cast<size_t>(row / kLanes) * block_bytes;
    const size_t lane = static_cast<size_t>(row % kLanes);
    if (traits.element_bytes == 4)
      pack_elements<4>(cols, source, block + 4 * lane);
    else if (traits.element_bytes == 2)
      pack_elements<2>(cols, source, block + 2 * lane);
    else
      pack_row(traits, info, cols, source, lane, block);
  }
}

void pack_codes(Scheme scheme, int32_t cols, uint8_t* packed, int32_t first_row, int32_t count,
                const uint8_t* codes, const uint16_t* scales, const uint16_t* minimums) {
  const SchemeTraits& traits = scheme_traits(scheme);
  const size_t block_bytes = row_block_bytes(scheme, cols);
  const int32_t groups = (cols - 1) / traits.group + 1;
  for (int32_t row = first_row; row < first_row + count; ++row) {
    uint8_t* block = packed + static_cast<size_t>(row / kLanes) * block_bytes;
    const size_t lane = static_cast<size_t>(row % kLanes);
    for (int32_t k = 0; k < cols; k += kSpanCols)
      pack_codes_of_span(traits, codes + k, cols - k < kSpanCols ? cols - k : kSpanCols,
                         block + span_offset(traits, k) + 4 * lane);
    for (int32_t g = 0; g < groups; ++g) {
      uint8_t* line = block + scale_line_offset(traits, g);
      const size_t slot = static_cast<size_t>(g % traits.chunk_groups);
      std::memcpy(line + 2 * (kLanes * slot + lane), scales + g, 2);
      if (traits.minimum) std::memcpy(line + 2 * (kLanes + lane), minimums + g, 2);
    }
    codes += cols;
    scales += groups;
    if (traits.minimum) minimums += groups;
  }
}

}  // namespace farthing
