// How long a team takes for tiles that it claims as it claims those of a pass.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "core/threads.h"

namespace farthing {

// Calls run(tile) once for each of 0..tiles-1, on whichever thread asks next. Returns the seconds
// from when all threads that can play have met until the last tile is done. `run` must not throw.
template <class Run>
double timed_tiles(ThreadPool& pool, int32_t tiles, const Run& run) {
  using Clock = std::chrono::steady_clock;
  enum Stage : int32_t { kMeeting, kTiles, kEnd, kStages };
  class Timed final : public StagedWork {
   public:
    Timed(int32_t players, int32_t tiles, const Run& run)
        : players_(players), tiles_(tiles), run_(run) {}

    int32_t begin(int32_t stage) override {
      if (stage == kMeeting) return players_;
      (stage == kTiles ? begin_ : end_) = Clock::now();
      return stage == kTiles ? tiles_ : 0;
    }
    void run(int32_t stage, int32_t tile, int) override {
      if (stage == kTiles) return run_(tile);
      arrived_.fetch_add(1);
      while (arrived_.load() < players_) std::this_thread::yield();
    }
    double seconds() const { return std::chrono::duration<double>(end_ - begin_).count(); }

   private:
    const int32_t players_, tiles_;
    const Run& run_;
    Clock::time_point begin_, end_;
    std::atomic<int32_t> arrived_{0};
  };
  Timed timed(pool.concurrency(), tiles, run);
  pool.run(timed, kStages);
  return timed.seconds();
}

}  // namespace farthing
