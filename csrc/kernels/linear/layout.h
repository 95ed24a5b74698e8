// The packed layout of weight matrices. It is the same on every instruction set.
//
// Rows (outputs) are interleaved 16 at a time: one row block, a contiguous run of bytes that a
// kernel reads from the first to the last. Everything starts on a 64-byte boundary.
//
// A *quad* is four consecutive columns of the 16 rows: 64 codes, that of (row r, column k) at
// position r * 4 + k % 4. Codes are unsigned with a zero point (SchemeTraits::zero) or indices into
// the codebook, except 8-bit ones, which are signed bytes.
//
// A *span* is 32 columns, eight quads:
//   4 bits and up  4 lines of 64 bytes; line i holds quad 2i in the low nibbles and quad 2i + 1 in
//                  the high ones (the low four bits of wider codes)
//   5 bits         one more line: bit q of byte b is the fifth bit of the code at position b of
//                  quad q
//   6 bits         two more lines: bits 2q and 2q + 1 of byte b of line i are the upper two bits of
//                  the code at position b of quad 4i + q
//   8 bits         8 lines, one a quad
//
// A *unit* is one group of columns that share a scale: first its integer sub-scales (K-quants),
// then its spans. Groups of 16 columns are two to a unit.
//   q4_k, q5_k     8 sub-blocks; 192 bytes. First [sub-block][16 rows] of bytes, scale's low four
//                  bits in the low nibble, minimum's in the high one; then [4][16 rows]: of byte j
//                  bits 0-1 and 2-3 are the upper two bits of sub-block j's scale and minimum,
//                  bits 4-5 and 6-7 those of sub-block j + 4.
//   q6_k           16 sub-blocks; [sub-block][16 rows] of int8.
//
// A row block is a sequence of *chunks*: one line of fp16 scales, then the units it is for. The
// line holds [16 rows] of scale for each of two groups: two units, or the halves of one where groups
// have 16 columns. In schemes with a minimum (q4_k, q5_k: dmin) a chunk is one unit, and the line
// holds [16 rows] of scale and [16 rows] of minimum. With an odd number of units the last chunk
// ends after its first one. Schemes with one scale a row have one chunk of one unit, the whole row,
// and the line's second half is empty.
//
// Columns are filled up to whole units (two spans, where the unit is the row); what codes stand
// there does not matter, for activations are filled up with zeros.
//
// Float schemes have no chunks: [column][16 rows] of the element type.
//
// Every byte belongs to one row, so threads may pack different rows of one block at once. No scheme
// takes more bits than its checkpoint format; only the end of a row block is padded.
#pragma once

#include "core/types.h"

namespace farthing {

inline constexpr int kSuperCols = 256;  // columns of a K-quant's unit
inline constexpr int kQuadBytes = 4 * kLanes;
inline constexpr int kLineBytes = 64;
static_assert(kQuadBytes == kLineBytes, "a quad is one cache line and one AVX-512 register");
inline constexpr int kWholeRow = 1 << 30;  // a group, where a row has one scale
// Groups of activations where the weights have no group of their own.
inline constexpr int kRowActivationGroup = 64;

struct SchemeTraits {
  int element_bytes;  // float schemes: bytes of a weight; else 0
  int code_bits;      // 4, 5, 6 or 8; 0 for float schemes, as all below
  int zero;           // value of a code is code - zero, but in codebook schemes
  int group;          // columns that share a floating-point scale; kWholeRow
  int activation_group;
  int sub_cols;       // columns that share an integer sub-scale; 0: one-level scales
  bool minimum;       // value = scale * code + minimum (one-level) or - minimum (two-level)
  bool codebook;      // value of a code is codebook[code]
  int sub_bytes;      // of a unit's sub-scales
  int span_bytes;
  int unit_cols;      // kWholeRow: all
  int unit_bytes;     // 0 where the unit is the row
  int chunk_units;    // units that share a line of scales
  int chunk_groups;   // groups that do
  int chunk_bytes;    // 0 where the unit is the row
};

consteval SchemeTraits float_scheme(int element_bytes) {
  SchemeTraits t{};
  t.element_bytes = element_bytes;
  return t;
}

consteval SchemeTraits super_scheme(int code_bits, int zero, int sub_cols, bool minimum) {
  SchemeTraits t{};
  t.code_bits = code_bits;
  t.zero = zero;
  t.group = t.activation_group = t.unit_cols = kSuperCols;
  t.sub_cols = sub_cols;
  t.minimum = minimum;
  t.sub_bytes = minimum ? 12 * kLanes : 16 * kLanes;
  t.span_bytes = code_bits * kSpanCols * kLanes / 8;
  t.unit_bytes = t.sub_bytes + kSuperCols / kSpanCols * t.span_bytes;
  t.chunk_units = t.chunk_groups = minimum ? 1 : 2;
  t.chunk_bytes = kLineBytes + t.chunk_units * t.unit_bytes;
  return t;
}

enum class Values { centred, minimum, codebook };

consteval SchemeTraits one_level(int code_bits, int group, Values values = Values::centred) {
  SchemeTraits t{};
  t.code_bits = code_bits;
  // Packed 8-bit codes are signed: their zero is 0.
  t.zero = values == Values::centred && code_bits < 8 ? 1 << (code_bits - 1) : 0;
  t.group = group;
  t.minimum = values == Values::minimum;
  t.codebook = values == Values::codebook;
  t.span_bytes = code_bits * kSpanCols * kLanes / 8;
  if (group == kWholeRow) {
    t.activation_group = kRowActivationGroup;
    t.unit_cols = kWholeRow;
    t.chunk_units = t.chunk_groups = 1;
    return t;
  }
  t.activation_group = group;
  t.unit_cols = group < kSpanCols ? kSpanCols : group;
  t.unit_bytes = t.unit_cols / kSpanCols * t.span_bytes;
  t.chunk_groups = t.minimum ? 1 : 2;
  t.chunk_units = group < kSpanCols ? 1 : t.chunk_groups;
  t.chunk_bytes = kLineBytes + t.chunk_units * t.unit_bytes;
  return t;
}

// Indexed by Scheme.
inline constexpr SchemeTraits kTraits[] = {
    float_scheme(4),                     // f32
    float_scheme(2),                     // f16
    float_scheme(2),                     // bf16
    one_level(4, 32),                    // q4_0
    one_level(4, 32, Values::minimum),   // q4_1
    one_level(5, 32),                    // q5_0
    one_level(5, 32, Values::minimum),   // q5_1
    one_level(8, 32),                    // q8_0
    super_scheme(4, 0, 32, true),        // q4_k
    super_scheme(5, 0, 32, true),        // q5_k
    super_scheme(6, 32, 16, false),      // q6_k
    one_level(4, 32, Values::codebook),  // iq4_nl
    one_level(4, 64),                    // w4g64
    one_level(4, 128),                   // w4g128
    one_level(4, kWholeRow),             // w4row
    one_level(4, 64, Values::minimum),   // w4g64m
    one_level(4, 128, Values::minimum),  // w4g128m
    one_level(4, 32, Values::codebook),  // nf4g32
    one_level(4, 64, Values::codebook),  // nf4g64
    one_level(4, 128, Values::codebook), // nf4g128
    one_level(5, 16),                    // w5g16
    one_level(5, 64),                    // w5g64
    one_level(5, 128),                   // w5g128
    one_level(5, kWholeRow),             // w5row
    one_level(6, 16),                    // w6g16
    one_level(6, 32),                    // w6g32
    one_level(6, 64),                    // w6g64
    one_level(6, 128),                   // w6g128
    one_level(6, kWholeRow),             // w6row
    one_level(8, 16),                    // w8g16
    one_level(8, 64),                    // w8g64
    one_level(8, 128),                   // w8g128
    one_level(8, kWholeRow),             // w8row
};
static_assert(sizeof(kTraits) / sizeof(kTraits[0]) == kNumSchemes);

// 16 rows of a chunk take 16 times the checkpoint's bytes.
static_assert(kTraits[static_cast<int>(Scheme::q4_0)].chunk_bytes == 2 * 18 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q4_1)].chunk_bytes == 20 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q5_0)].chunk_bytes == 2 * 22 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q5_1)].chunk_bytes == 24 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q8_0)].chunk_bytes == 2 * 34 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q4_k)].chunk_bytes == 144 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q5_k)].chunk_bytes == 176 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q6_k)].chunk_bytes == 2 * 210 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::iq4_nl)].chunk_bytes == 2 * 18 * kLanes);

FARTHING_INLINE const SchemeTraits& scheme_traits(Scheme scheme) {
  return kTraits[static_cast<int>(scheme)];
}

// From the start of a row block to the line of scales of a group, to the unit of a column, and to
// the span of a column.
FARTHING_INLINE size_t scale_line_offset(const SchemeTraits& t, int group) {
  return static_cast<size_t>(group / t.chunk_groups) * t.chunk_bytes;
}
FARTHING_INLINE size_t unit_offset(const SchemeTraits& t, int col) {
  const int unit = col / t.unit_cols;
  return static_cast<size_t>(unit / t.chunk_units) * t.chunk_bytes + kLineBytes +
         static_cast<size_t>(unit % t.chunk_units) * t.unit_bytes;
}
FARTHING_INLINE size_t span_offset(const SchemeTraits& t, int col) {
  return unit_offset(t, col) + t.sub_bytes +
         static_cast<size_t>(col % t.unit_cols / kSpanCols) * t.span_bytes;
}

}  // namespace farthing
