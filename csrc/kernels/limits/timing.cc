#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>

#include "kernels/limits/limits.h"

namespace farthing {
namespace {

uint64_t expected_sum(const LimitLoop& loop, int64_t iterations) {
  uint64_t one = static_cast<uint64_t>(loop.step) * static_cast<uint64_t>(iterations);
  if (loop.sum_bits > 0) one &= (uint64_t{1} << loop.sum_bits) - 1;
  return one * static_cast<uint64_t>(loop.sums);
}

}  // namespace

double time_limit_loop(const LimitLoop& loop, ThreadPool& pool, int64_t iterations) {
  if (iterations < 1 || iterations > kMaxLimitIterations)
    throw std::invalid_argument("iterations must be from 1 to " +
                                std::to_string(kMaxLimitIterations));
  const uint64_t expected = expected_sum(loop, iterations);
  std::atomic<bool> right{true};
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin, end;
  pool.run([&](int thread) {
    pool.barrier().wait();
    if (thread == 0) begin = Clock::now();
    if (loop.run(iterations) != expected) right.store(false, std::memory_order_relaxed);
    pool.barrier().wait();
    if (thread == 0) end = Clock::now();
  });
  if (!right.load()) throw std::runtime_error(std::string(loop.name) + " added up wrongly");
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace farthing
