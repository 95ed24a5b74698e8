// Multiply-adds a core can do at most: loops of one instruction sequence over operands that stay in
// registers. What kernels reach is shown as a share of these, measured in the same run.
//
// Every loop keeps enough independent accumulators that no addition waits for the one before, and
// adds one known product an iteration, so that its sum proves that it was computed.
#pragma once

#include <cstdint>

#include "core/isa.h"
#include "core/threads.h"

namespace farthing {

struct LimitLoop {
  const char* name;  // its instructions: "vpmaddubsw+vpaddw"
  bool integer;      // int8 products, else fp32
  int32_t macs;      // multiply-adds of an iteration
  int32_t sums;      // numbers kept, each of which an iteration adds `step` to
  int32_t step;
  int32_t sum_bits;  // integers wrap modulo 2^sum_bits; 0: floats, exact below 2^24
  // The sum of all kept numbers, as unsigned, after `iterations`.
  uint64_t (*run)(int64_t iterations);
};

// Iterations of one call at most: floats count exactly so far.
inline constexpr int64_t kMaxLimitIterations = (int64_t{1} << 24) - 1;

struct LimitLoops {
  const LimitLoop* loops;
  int32_t count;
};
// Those of one instruction set, the integer ones first.
const LimitLoops& limit_loops(Isa isa);

// Seconds that the pool's threads need for `tiles` of `iterations` each. Throws
// std::invalid_argument unless iterations are 1..kMaxLimitIterations and tiles positive,
// std::runtime_error when a sum is wrong.
double time_limit_loop(const LimitLoop& loop, ThreadPool& pool, int64_t iterations, int32_t tiles);

}  // namespace farthing
