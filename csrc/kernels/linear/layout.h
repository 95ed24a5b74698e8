// The packed layout of weight matrices. It is the same on every instruction set.
//
// Rows (outputs) are interleaved 16 at a time: one row block, a contiguous run of bytes that a
// kernel reads from the first to the last. Everything starts on a 64-byte boundary.
//
// A *quad* is four consecutive columns of the 16 rows: 64 codes, that of (row r, column k) at
// position r * 4 + k % 4. Codes are unsigned with a zero point (SchemeTraits::zero), except q8_0,
// whose codes are signed bytes.
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
// A *unit* is one group of columns that share a scale (one span, or 256 columns for K-quants):
// first its integer sub-scales, then its spans.
//   q4_k, q5_k     8 sub-blocks; 192 bytes. First [sub-block][16 rows] of bytes, scale's low four
//                  bits in the low nibble, minimum's in the high one; then [4][16 rows]: of byte j
//                  bits 0-1 and 2-3 are the upper two bits of sub-block j's scale and minimum,
//                  bits 4-5 and 6-7 those of sub-block j + 4.
//   q6_k           16 sub-blocks; [sub-block][16 rows] of int8.
//
// A row block is a sequence of *chunks*: one line of fp16 scales, then the units it is for. In
// schemes with a minimum (q4_1, q5_1: m; q4_k, q5_k: dmin) that is one unit, and the line holds
// [16 rows] of scale and [16 rows] of minimum; else two, and the line holds [16 rows] of scale for
// each. With an odd number of units the last chunk ends after its first one.
//
// Float schemes have no chunks: [column][16 rows] of the element type.
//
// Every byte belongs to one row, so threads may pack different rows of one block at once. No scheme
// takes more bits than its checkpoint format; only the end of a row block is padded.
#pragma once

#include "core/types.h"

namespace farthing {

inline constexpr int kSpanCols = 32;
inline constexpr int kSuperCols = 256;  // columns of a K-quant's unit
inline constexpr int kQuadBytes = 4 * kLanes;
inline constexpr int kLineBytes = 64;
static_assert(kQuadBytes == kLineBytes, "a quad is one cache line and one AVX-512 register");

struct SchemeTraits {
  int element_bytes;  // float schemes: bytes of a weight; else 0
  int code_bits;      // 4, 5, 6 or 8; 0 for float schemes, as all below
  int zero;           // value of a code is code - zero
  int group;          // columns that share a floating-point scale
  int sub_cols;       // columns that share an integer sub-scale; 0: one-level scales
  bool minimum;       // value = scale * code + minimum (one-level) or - minimum (two-level)
  int sub_bytes;      // of a unit's sub-scales
  int span_bytes;
  int unit_bytes;
  int chunk_units;    // units that share a line of scales
  int chunk_bytes;
};

consteval SchemeTraits float_scheme(int element_bytes) {
  return {element_bytes, 0, 0, 0, 0, false, 0, 0, 0, 0, 0};
}

consteval SchemeTraits block_scheme(int code_bits, int zero, int group, int sub_cols,
                                    bool minimum) {
  const int sub_bytes = sub_cols == 0 ? 0 : minimum ? 12 * kLanes : 16 * kLanes;
  const int span_bytes = code_bits * kSpanCols * kLanes / 8;
  const int unit_bytes = sub_bytes + group / kSpanCols * span_bytes;
  const int chunk_units = minimum ? 1 : 2;
  return {0,          code_bits,  zero,        group,
          sub_cols,   minimum,    sub_bytes,   span_bytes,
          unit_bytes, chunk_units, kLineBytes + chunk_units * unit_bytes};
}

// Indexed by Scheme.
inline constexpr SchemeTraits kTraits[] = {
    float_scheme(4),                       // f32
    float_scheme(2),                       // f16
    float_scheme(2),                       // bf16
    block_scheme(4, 8, 32, 0, false),      // q4_0
    block_scheme(4, 0, 32, 0, true),       // q4_1
    block_scheme(5, 16, 32, 0, false),     // q5_0
    block_scheme(5, 0, 32, 0, true),       // q5_1
    block_scheme(8, 0, 32, 0, false),      // q8_0
    block_scheme(4, 0, 256, 32, true),     // q4_k
    block_scheme(5, 0, 256, 32, true),     // q5_k
    block_scheme(6, 32, 256, 16, false),   // q6_k
};
inline constexpr int kNumSchemes = sizeof(kTraits) / sizeof(kTraits[0]);
static_assert(kNumSchemes == static_cast<int>(Scheme::q6_k) + 1);

// 16 rows of a chunk take 16 times the checkpoint's bytes.
static_assert(kTraits[static_cast<int>(Scheme::q4_0)].chunk_bytes == 2 * 18 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q4_1)].chunk_bytes == 20 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q5_0)].chunk_bytes == 2 * 22 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q5_1)].chunk_bytes == 24 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q8_0)].chunk_bytes == 2 * 34 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q4_k)].chunk_bytes == 144 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q5_k)].chunk_bytes == 176 * kLanes);
static_assert(kTraits[static_cast<int>(Scheme::q6_k)].chunk_bytes == 2 * 210 * kLanes);

}  // namespace farthing
