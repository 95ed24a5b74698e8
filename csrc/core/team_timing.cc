#include "core/team_timing.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/pause.h"

namespace farthing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPatience{10};

constexpr int32_t kMostRounds = 1'000'000;

int32_t checked_rounds(int32_t rounds) {
  if (rounds < 1 || rounds > kMostRounds)
    throw std::invalid_argument("rounds=" + std::to_string(rounds) + " must be from 1 to " +
                                std::to_string(kMostRounds));
  return rounds;
}

// Every tile waits until all of its stage have begun, so that each is run by a thread of its own.
class Meetings final : public StagedWork {
 public:
  Meetings(const ThreadPool& pool, int32_t stages)
      : tiles_(pool.concurrency()),
        begins_(static_cast<size_t>(stages)),
        ends_(static_cast<size_t>(stages)),
        times_(static_cast<size_t>(tiles_)) {}

  int32_t begin(int32_t stage) override {
    if (stage > 0) note(stage - 1);
    arrived_.store(0, std::memory_order_relaxed);
    return tiles_;
  }

  void run(int32_t, int32_t tile, int) override {
    Times& times = times_[static_cast<size_t>(tile)];
    times.begin = Clock::now();
    arrived_.fetch_add(1, std::memory_order_acq_rel);
    while (arrived_.load(std::memory_order_acquire) < tiles_) {
      if (Clock::now() - times.begin > kPatience) break;
      pause();
    }
    times.end = Clock::now();
  }

  // The last times of a stage that is done.
  void note(int32_t stage) {
    const size_t i = static_cast<size_t>(stage);
    for (const Times& times : times_) {
      begins_[i] = std::max(begins_[i], times.begin);
      ends_[i] = std::max(ends_[i], times.end);
    }
  }

  Clock::time_point last_begin(size_t stage) const { return begins_[stage]; }
  Clock::time_point last_end(size_t stage) const { return ends_[stage]; }

 private:
  struct alignas(64) Times {
    Clock::time_point begin, end;
  };
  const int32_t tiles_;
  std::vector<Clock::time_point> begins_, ends_;
  std::vector<Times> times_;  // of each tile of the stage
  alignas(64) std::atomic<int32_t> arrived_{0};
};

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

std::vector<double> barrier_seconds(ThreadPool& pool, int32_t rounds) {
  Meetings meetings(pool, checked_rounds(rounds) + 1);
  pool.run(meetings, rounds + 1);
  meetings.note(rounds);
  std::vector<double> result;
  for (size_t i = 0; i < static_cast<size_t>(rounds); ++i)
    result.push_back(seconds(meetings.last_end(i), meetings.last_begin(i + 1)));
  return result;
}

std::vector<double> start_seconds(ThreadPool& pool, int32_t rounds, double idle) {
  checked_rounds(rounds);
  if (!(idle >= 0 && idle <= 60))
    throw std::invalid_argument("idle=" + std::to_string(idle) + " must be from 0 to 60 seconds");
  std::vector<double> result;
  for (int32_t i = 0; i < rounds; ++i) {
    if (idle > 0) std::this_thread::sleep_for(std::chrono::duration<double>(idle));
    Meetings meetings(pool, 1);
    const Clock::time_point call = Clock::now();
    pool.run(meetings, 1);
    meetings.note(0);
    result.push_back(seconds(call, meetings.last_begin(0)));
  }
  return result;
}

}  // namespace farthing
