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

// Writes one row's share of the planes. Pointers are at the row's place in the first line.
void write_nibbles(const uint32_t* quads, int count, uint8_t* codes) {
  for (int i = 0; i < count / 2; ++i)
    store32(codes + 64 * i,
            (quads[2 * i] & 0x0f0f0f0fu) | (quads[2 * i + 1] & 0x0f0f0f0fu) << 4);
}

void write_fifth_bits(const uint32_t* quads, int count, uint8_t* high) {
  for (int span = 0; span < count / 8; ++span) {
    uint32_t word = 0;
    for (int q = 0; q < 8; ++q) word |= ((quads[8 * span + q] >> 4) & 0x01010101u) << q;
    store32(high + 64 * span, word);
  }
}

void write_upper_two_bits(const uint32_t* quads, int count, uint8_t* high) {
  for (int run = 0; run < count / 4; ++run) {
    uint32_t word = 0;
    for (int q = 0; q < 4; ++q) word |= ((quads[4 * run + q] >> 4) & 0x03030303u) << (2 * q);
    store32(high + 64 * run, word);
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

struct RowPlanes {  // at this row's place in each plane
  uint8_t* codes;
  uint8_t* high;
  uint8_t* sub;
  uint8_t* scales;
};

void pack_one_level(Scheme scheme, const SchemeInfo& info, int32_t cols, const uint8_t* source,
                    RowPlanes to) {
  const SchemeTraits& traits = kTraits[static_cast<int>(scheme)];
  const int scale_bytes = 2 * kLanes * (traits.minimum ? 2 : 1);
  for (int32_t g = 0; g < cols / kSpanCols; ++g, source += info.block_bytes) {
    const uint8_t* block = source;
    std::memcpy(to.scales + scale_bytes * static_cast<size_t>(g), block, 2);
    block += 2;
    if (traits.minimum) {
      std::memcpy(to.scales + scale_bytes * static_cast<size_t>(g) + 2 * kLanes, block, 2);
      block += 2;
    }
    if (traits.code_bits == 8) {
      for (int q = 0; q < 8; ++q)
        std::memcpy(to.codes + 64 * (8 * static_cast<size_t>(g) + q), block + 4 * q, 4);
      continue;
    }
    Quads quads;
    if (traits.code_bits == 5) {
      read_nibbles<4>(block + 4, quads);
      add_fifth_bits(block, quads);
      write_fifth_bits(quads, 8, to.high + 64 * static_cast<size_t>(g));
    } else {
      read_nibbles<4>(block, quads);
    }
    write_nibbles(quads, 8, to.codes + 256 * static_cast<size_t>(g));
  }
}

void pack_two_level(Scheme scheme, const SchemeInfo& info, int32_t cols, const uint8_t* source,
                    RowPlanes to) {
  for (size_t s = 0; s < static_cast<size_t>(cols / kSuperCols); ++s, source += info.block_bytes) {
    Quads quads;
    if (scheme == Scheme::q6_k) {
      read_q6_k(source, source + 128, quads);
      for (size_t j = 0; j < 16; ++j)
        to.sub[kSubScaleBytesQ6K * s + kLanes * j] = source[192 + j];
      std::memcpy(to.scales + 2 * kLanes * s, source + 208, 2);
      write_upper_two_bits(quads, kSuperCols / 4, to.high + 1024 * s);
    } else {
      std::memcpy(to.scales + 4 * kLanes * s, source, 2);
      std::memcpy(to.scales + 4 * kLanes * s + 2 * kLanes, source + 2, 2);
      uint8_t scales[8], minimums[8];
      read_sub_scales(source + 4, scales, minimums);
      write_sub_scales(scales, minimums, to.sub + kSubScaleBytesQ4K * s);
      if (scheme == Scheme::q5_k) {
        read_q5_k(source + 48, source + 16, quads);
        write_fifth_bits(quads, kSuperCols / 4, to.high + 512 * s);
      } else {
        for (int c = 0; c < 4; ++c) read_nibbles<8>(source + 16 + 32 * c, quads + 16 * c);
      }
    }
    write_nibbles(quads, kSuperCols / 4, to.codes + 2048 * s);
  }
}

template <int kBytes>
void pack_elements(int32_t cols, const uint8_t* source, uint8_t* to) {
  for (size_t k = 0; k < static_cast<size_t>(cols); ++k)
    std::memcpy(to + kBytes * kLanes * k, source + kBytes * k, kBytes);
}

}  // namespace

RowBlockLayout row_block_layout(Scheme scheme, int32_t cols) {
  const SchemeTraits& traits = kTraits[static_cast<int>(scheme)];
  const size_t k = static_cast<size_t>(cols);
  RowBlockLayout layout{};
  if (traits.element_bytes != 0) {
    layout.high = round_up_64(k * kLanes * static_cast<size_t>(traits.element_bytes));
    layout.sub = layout.scales = layout.bytes = layout.high;
    return layout;
  }
  const size_t groups = k / static_cast<size_t>(traits.group);
  layout.high = round_up_64(k * kLanes / (traits.code_bits == 8 ? 1 : 2));
  const size_t high_bits = traits.code_bits == 8 ? 0 : static_cast<size_t>(traits.code_bits - 4);
  layout.sub = layout.high + round_up_64(k * kLanes * high_bits / 8);
  const size_t sub_bytes = traits.sub_cols == 0 ? 0
                           : traits.minimum     ? kSubScaleBytesQ4K
                                                : kSubScaleBytesQ6K;
  layout.scales = layout.sub + groups * sub_bytes;
  layout.bytes = layout.scales + round_up_64(groups * 2 * kLanes * (traits.minimum ? 2 : 1));
  return layout;
}

size_t row_block_bytes(Scheme scheme, int32_t cols) { return row_block_layout(scheme, cols).bytes; }

void pack_rows(Scheme scheme, int32_t rows, int32_t cols, uint8_t* packed, int32_t first_row,
               int32_t count, const uint8_t* source) {
  (void)rows;
  const SchemeInfo& info = scheme_info(scheme);
  const SchemeTraits& traits = kTraits[static_cast<int>(scheme)];
  const RowBlockLayout layout = row_block_layout(scheme, cols);
  const size_t source_row = static_cast<size_t>(cols / info.block_cols) * info.block_bytes;
  for (int32_t row = first_row; row < first_row + count; ++row, source += source_row) {
    uint8_t* block = packed + static_cast<size_t>(row / kLanes) * layout.bytes;
    const size_t lane = static_cast<size_t>(row % kLanes);
    if (traits.element_bytes == 4) {
      pack_elements<4>(cols, source, block + 4 * lane);
    } else if (traits.element_bytes == 2) {
      pack_elements<2>(cols, source, block + 2 * lane);
    } else {
      const RowPlanes to{block + 4 * lane, block + layout.high + 4 * lane,
                         block + layout.sub + lane, block + layout.scales + 2 * lane};
      (traits.sub_cols == 0 ? pack_one_level : pack_two_level)(scheme, info, cols, source, to);
    }
  }
}

}  // namespace farthing
