// Sixteen floats or sixteen 32-bit integers in registers: the width every float kernel is written
// in, whatever the instruction set, so that one source compiled once per set gives the same bits.
//
// Only for files compiled with FARTHING_ISA. Everything lives in a namespace of that name: nothing
// compiled for one instruction set can be linked into another's place.
//
//   Lanes     load, load_first, store, store_first, broadcast, + - * /, fma, maximum, minimum, sum,
//             largest, sum_of_rows, largest_of_rows; load also of Half and int8; store of Half
//             rounds to nearest even, beyond the range to infinity; load_nibbles, load_nibble_pairs
//             of codes of 4 bits, as the values and keys of core/kv_layout.h lie; look_up (lane i is
//             lane index[i] % 16 of a table), look_up_eight (the same where a table's halves are
//             equal)
//   IntLanes  load_ints, store_ints, store_bytes (of values in -128..127), broadcast_int, iota,
//             + - & | ^, shifts, multiply_wide, as_int, as_float, round_to_int, to_float
//   Mask      less, not_less, equal, unordered, first_lanes, |, and_not, select, keep, increment
//             (integers by one where the mask is set), mask_bits, mask_of (bit i of its low 16 is
//             lane i)
//
// Lane i of every result depends on lane i of the operands, except in look_ups, sum and
// largest:
//   sum      joins lanes 8 apart, then 4, 2 and 1; so do the rows of sum_of_rows
//   maximum  is a > b ? a : b, so b when either is NaN; minimum likewise
//   round_to_int  nearest even, for |x| < 2^22; the low 9 bits of what NaN gives are 0
#pragma once

#include <cstdint>

#include "core/inline.h"

#ifndef FARTHING_ISA
#error "lanes.h belongs to files compiled once per instruction set"
#endif

namespace farthing::FARTHING_ISA {

struct Half {
  uint16_t bits;
};
static_assert(sizeof(Half) == 2);

}  // namespace farthing::FARTHING_ISA

// Which set a file is for decides, not what its flags would allow.
#define FARTHING_JOIN(a, b) a##b
#define FARTHING_LANES_OF(isa) FARTHING_JOIN(FARTHING_LANES_, isa)
#define FARTHING_LANES_scalar 0
#define FARTHING_LANES_avx2 1
#define FARTHING_LANES_avxvnni 1
#define FARTHING_LANES_avx512 2
#define FARTHING_LANES_neon 3
#if FARTHING_LANES_OF(FARTHING_ISA) == 3
#include "core/lanes_neon.h"
#elif FARTHING_LANES_OF(FARTHING_ISA) == 2
#include "core/lanes_avx512.h"
#elif FARTHING_LANES_OF(FARTHING_ISA) == 1
#include "core/lanes_avx2.h"
#else
#include "core/lanes_scalar.h"
#endif

namespace farthing::FARTHING_ISA {

FARTHING_INLINE Lanes zero() { return broadcast(0.0f); }

// Sign changed, of zero and NaN too.
FARTHING_INLINE Lanes negative(Lanes x) {
  return as_float(as_int(x) ^ broadcast_int(0x80000000));
}

FARTHING_INLINE Lanes magnitude(Lanes x) {
  return as_float(as_int(x) & broadcast_int(0x7fffffff));
}

// Lanes low <= i < high.
FARTHING_INLINE Mask lanes_between(int32_t low, int32_t high) {
  return and_not(first_lanes(low), first_lanes(high));
}

// Unsigned 32-bit integers to float, one rounding: both halves are exact.
FARTHING_INLINE Lanes unsigned_to_float(IntLanes x) {
  const Lanes high = to_float(shift_right<16>(x));
  return fma(high, broadcast(65536.0f), to_float(x & broadcast_int(0xffff)));
}

// Visits `width` columns 16 at a time: body(get, put, column), where get(p) and put(p, value) move
// 16 columns, or at the end of the row only those that are left; get gives 0 for absent ones.
template <class Body>
FARTHING_INLINE void each_lanes(int64_t width, Body body) {
  int64_t column = 0;
  for (; column + 16 <= width; column += 16)
    body([](const float* p) { return load(p); }, [](float* p, Lanes x) { store(p, x); }, column);
  const int32_t rest = static_cast<int32_t>(width - column);
  if (rest > 0)
    body([rest](const float* p) { return load_first(p, rest); },
         [rest](float* p, Lanes x) { store_first(p, rest, x); }, column);
}

}  // namespace farthing::FARTHING_ISA
