// How long a team takes for tiles that it claims as it claims those of a pass.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/threads.h"

namespace farthing {

// Calls run(tile) once for each of 0..tiles-1, on whichever thread asks next. Returns the seconds
// from the first thread's start, all having met, until the last tile is done. `run` must not throw.
template <class Run>
double timed_tiles(ThreadPool& pool, int32_t tiles, const Run& run) {
  using Clock = std::chrono::steady_clock;
  struct alignas(64) Times {
    Clock::time_point begin, end;  // of its first tile, of its last
  };
  std::vector<Times> times(static_cast<size_t>(pool.num_threads()));
  TileCounter counter;
  pool.run([&](int thread) {
    Times& own = times[static_cast<size_t>(thread)];
    pool.barrier().wait();
    own.begin = Clock::now();
    for (;;) {
      const int32_t tile = counter.next.fetch_add(1, std::memory_order_relaxed);
      if (tile >= tiles) break;
      run(tile);
      own.end = Clock::now();
    }
  });
  Clock::time_point begin = times.front().begin, end = begin;
  for (const Times& own : times) {
    begin = std::min(begin, own.begin);
    end = std::max(end, own.end);
  }
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace farthing
