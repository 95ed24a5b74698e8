// The packed layout of weight matrices. It is the same on every instruction set.
//
// Rows (outputs) are interleaved 16 at a time: one row block. A row block is one contiguous run of
// bytes, a multiple of 64, made of up to four planes, each starting on a 64-byte boundary:
//
//   codes | high bits | sub-scales | scales
//
// A *quad* is four consecutive columns of the 16 rows: 64 codes, that of (row r, column k) at
// position r * 4 + k % 4. Quads ascend with the columns. Codes are unsigned with a zero point
// (SchemeTraits::zero), except q8_0, whose codes are signed bytes.
//
//   codes       4 bits and up: 64 bytes hold two quads, 2i in the low nibbles, 2i+1 in the high
//               ones (the low four bits of wider codes). q8_0: 64 bytes a quad.
//               float schemes: [column][16 rows] of the element type, and no other plane.
//   high bits   5-bit codes: 64 bytes per 32 columns; bit q of byte b is the fifth bit of the code at
//               position b of quad q. 6-bit codes: 64 bytes per 16 columns; bits 2q and 2q+1 of
//               byte b are the upper two bits of the code at position b of quad q.
//   sub-scales  q4_k, q5_k: 192 bytes per 256 columns. First 8 lines [sub-block][16 rows] of bytes,
//               scale's low four bits in the low nibble, minimum's in the high one; then 4 lines
//               [j][16 rows]: bits 0-1 and 2-3 are the upper two bits of sub-block j's scale and
//               minimum, bits 4-5 and 6-7 those of sub-block j + 4.
//               q6_k: [16 sub-blocks][16 rows] of int8 per 256 columns.
//   scales      fp16, per group (32 columns, or 256 for K-quants): [16 rows], followed, in schemes
//               with a minimum, by the [16 rows] of the minimum (q4_1, q5_1: m; q4_k, q5_k: dmin).
//
// Every byte belongs to one row, so threads may pack different rows of one block at once. No scheme
// takes more bits than its checkpoint format; only plane ends are rounded up to 64 bytes.
#pragma once

#include "core/types.h"

namespace farthing {

inline constexpr int kQuadBytes = 4 * kLanes;
inline constexpr int kSpanCols = 32;  // columns of one line of 5-bit high bits, of four nibble lines
inline constexpr int kSuperCols = 256;

struct SchemeTraits {
  int element_bytes;  // float schemes: bytes of a weight; else 0
  int code_bits;      // 4, 5, 6 or 8; 0 for float schemes
  int zero;           // value of a code is code - zero
  int group;          // columns that share a floating-point scale; 0 for float schemes
  int sub_cols;       // columns that share an integer sub-scale; 0: one-level scales
  bool minimum;       // value = scale * code + minimum (one-level) or - minimum (two-level)
};

// Indexed by Scheme.
inline constexpr SchemeTraits kTraits[] = {
    {4, 0, 0, 0, 0, false},      // f32
    {2, 0, 0, 0, 0, false},      // f16
    {2, 0, 0, 0, 0, false},      // bf16
    {0, 4, 8, 32, 0, false},     // q4_0
    {0, 4, 0, 32, 0, true},      // q4_1
    {0, 5, 16, 32, 0, false},    // q5_0
    {0, 5, 0, 32, 0, true},      // q5_1
    {0, 8, 0, 32, 0, false},     // q8_0
    {0, 4, 0, 256, 32, true},    // q4_k
    {0, 5, 0, 256, 32, true},    // q5_k
    {0, 6, 32, 256, 16, false},  // q6_k
};
inline constexpr int kNumSchemes = sizeof(kTraits) / sizeof(kTraits[0]);
static_assert(kNumSchemes == static_cast<int>(Scheme::q6_k) + 1);

inline constexpr int kSubScaleBytesQ4K = 192;  // per 256 columns of a row block; q5_k alike
inline constexpr int kSubScaleBytesQ6K = 256;
static_assert(kSubScaleBytesQ4K == kLanes * 12, "12 bytes a row, as in the checkpoint");
static_assert(kLanes == 16 && kQuadBytes == 64, "a quad is one cache line and one AVX-512 register");
// Bytes of a row block per 256 columns = 16 rows times the checkpoint's bytes.
static_assert(128 * kLanes + kSubScaleBytesQ4K + 2 * 2 * kLanes == 144 * kLanes, "q4_k");
static_assert(128 * kLanes + 8 * 64 + kSubScaleBytesQ4K + 2 * 2 * kLanes == 176 * kLanes, "q5_k");
static_assert(128 * kLanes + 16 * 64 + kSubScaleBytesQ6K + 2 * kLanes == 210 * kLanes, "q6_k");

// Byte offsets of the planes inside a row block.
struct RowBlockLayout {
  size_t high;
  size_t sub;
  size_t scales;
  size_t bytes;  // of the whole row block
};
RowBlockLayout row_block_layout(Scheme scheme, int32_t cols);

}  // namespace farthing
