#include <atomic>
#include <stdexcept>
#include <string>

#include "core/timed_tiles.h"
#include "kernels/limits/limits.h"

namespace farthing {
namespace {

uint64_t expected_sum(const LimitLoop& loop, int64_t iterations) {
  uint64_t one = static_cast<uint64_t>(loop.step) * static_cast<uint64_t>(iterations);
  if (loop.sum_bits > 0) one &= (uint64_t{1} << loop.sum_bits) - 1;
  return one * static_cast<uint64_t>(loop.sums);
}

}  // namespace

double time_limit_loop(const LimitLoop& loop, ThreadPool& pool, int64_t iterations,
                       int32_t tiles) {
  if (tiles < 1) throw std::invalid_argument("tiles must be at least 1");
  if (iterations < 1 || iterations > kMaxLimitIterations)
    throw std::invalid_argument("iterations must be from 1 to " +
                                std::to_string(kMaxLimitIterations));
  const uint64_t expected = expected_sum(loop, iterations);
  std::atomic<bool> right{true};
  const double seconds = timed_tiles(pool, tiles, [&](int32_t) {
    if (loop.run(iterations) != expected) right.store(false, std::memory_order_relaxed);
  });
  if (!right.load()) throw std::runtime_error(std::string(loop.name) + " added up wrongly");
  return seconds;
}

}  // namespace farthing
