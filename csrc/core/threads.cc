#include "core/threads.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/float_mode.h"
#include "core/pause.h"

namespace farthing {
namespace {

// A look at the clock costs as much as a pause or two.
constexpr int kLooksPerClock = 64;
// Most stages end within the first: a thread that waits longer lets others have the processor, if
// there are any. The second outlasts what Python does between two passes of a running stream
// (bench/LOG.md), so that only an idle server's threads sleep.
constexpr std::chrono::microseconds kKeepProcessor{50};
constexpr std::chrono::microseconds kStayAwake{1000};

// Less than half of a core's second-level cache, which a pass's activations share.
constexpr size_t kAheadBytes = size_t{128} << 10;
constexpr size_t kLineBytes = 64;

uint64_t word(uint32_t number, int32_t tiles) {
  return (uint64_t{number} << 32) | static_cast<uint32_t>(tiles);
}
uint32_t number_of(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
int32_t tiles_of(uint64_t word) { return static_cast<int32_t>(static_cast<uint32_t>(word)); }

int checked(const char* name, int value, int most) {
  if (value < 1 || value > most)
    throw std::invalid_argument(std::string(name) + "=" + std::to_string(value) +
                                " must be from 1 to " + std::to_string(most));
  return value;
}

}  // namespace

ThreadPool::ThreadPool(int num_threads, int cpus)
    : num_threads_(checked("num_threads", num_threads, kMaxThreads)),
      cpus_(checked("cpus", cpus, INT32_MAX)),
      owner_pid_(getpid()),
      shares_(static_cast<size_t>(concurrency())) {
  workers_.reserve(static_cast<size_t>(num_threads - 1));
  for (int i = 1; i < num_threads; ++i) {
    try {
      workers_.emplace_back([this, i] { serve(i); });
    } catch (const std::exception& error) {  // std::system_error, or std::bad_alloc for its state
      stop();
      throw std::runtime_error("could not start thread " + std::to_string(i + 1) + " of " +
                               std::to_string(num_threads) + ": " + error.what());
    }
  }
}

ThreadPool::~ThreadPool() {
  if (getpid() != owner_pid_) {
    // The workers exist in the parent only: neither to be joined here nor, by pthreads, detached.
    new std::vector<std::thread>(std::move(workers_));
    return;
  }
  stop();
}

void ThreadPool::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  stage_.store(word(number_of(stage_.load(std::memory_order_relaxed)) + 1, 0));
  release(sleepers_.exchange(0), true);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::serve(int thread) {
  const FloatMode mode;
  Fetching fetching{share_of(thread)};
  sleep_as_worker(0);
  for (;;) {
    const uint32_t seen = play(thread);
    if (stopping_.load(std::memory_order_relaxed)) return;
    const bool crowded = num_threads_ - asleep() > cpus_;
    if (crowded || !spin(seen, fetching)) sleep_as_worker(seen);
  }
}

void ThreadPool::run(StagedWork& work, int32_t stages) {
  if (getpid() != owner_pid_)
    throw std::runtime_error("a model cannot be used in a forked child; load it there again");
  const std::lock_guard<std::mutex> lock(in_use_);
  const FloatMode mode;
  work_ = &work;
  stages_ = stages;
  const uint32_t last = number_of(stage_.load(std::memory_order_relaxed));
  first_ = last + 1;
  // A share that no stage has had a tile for in a long time would take its number for a newer one.
  for (Share& share : shares_) share.claims.store(word(last, 0), std::memory_order_relaxed);
  const uint32_t end = first_ + static_cast<uint32_t>(stages);
  Fetching fetching{share_of(0)};
  open(0);
  for (;;) {
    const uint32_t seen = play(0);
    if (seen == end) return;
    if (!spin(seen, fetching)) sleep_as_caller(seen);
  }
}

// Runs tiles, of several stages if it comes so, until none can be claimed; returns the number of
// the stage that had none.
uint32_t ThreadPool::play(int thread) {
  const int shares = this->shares();
  for (;;) {
    const uint64_t stage = stage_.load(std::memory_order_acquire);
    const uint32_t number = number_of(stage);
    int32_t mine = 0;
    for (int i = 0; i < shares; ++i) {
      int32_t tile;
      while ((tile = claim(stage, (thread + i) % shares)) >= 0) {
        // The stage cannot end before this tile is told in done_.
        work_->run(static_cast<int32_t>(number - first_), tile, thread);
        ++mine;
      }
    }
    if (mine == 0) return number;
    if (done_.fetch_add(mine, std::memory_order_acq_rel) + mine != tiles_of(stage)) return number;
    open(static_cast<int32_t>(number - first_) + 1);
  }
}

// A tile of `share`, or -1 if there is none left or the stage is over.
int32_t ThreadPool::claim(uint64_t stage, int share) {
  const int32_t begin = share_begin(tiles_of(stage), share);
  const int32_t count = share_begin(tiles_of(stage), share + 1) - begin;
  if (count == 0) return -1;
  std::atomic<uint64_t>& claims = shares_[static_cast<size_t>(share)].claims;
  uint64_t seen = claims.load(std::memory_order_relaxed);
  for (;;) {
    const int32_t age = static_cast<int32_t>(number_of(stage) - number_of(seen));
    if (age < 0) return -1;
    const int32_t claimed = age == 0 ? tiles_of(seen) : 0;
    if (claimed == count) return -1;
    if (claims.compare_exchange_weak(seen, word(number_of(stage), claimed + 1),
                                     std::memory_order_acq_rel, std::memory_order_relaxed))
      return begin + claimed;
  }
}

// Opens the first stage from `stage` on that has tiles, or ends the run.
void ThreadPool::open(int32_t stage) {
  done_.store(0, std::memory_order_relaxed);
  int32_t tiles = 0;
  while (stage < stages_ && (tiles = work_->begin(stage)) == 0) ++stage;
  publish(first_ + static_cast<uint32_t>(stage), tiles);
}

// This and the two sleep functions: either the one who falls asleep sees the new stage or the one
// who publishes it sees the sleeper, as all four accesses are in the one order of seq_cst.
void ThreadPool::publish(uint32_t number, int32_t tiles) {
  stage_.store(word(number, tiles));
  if (caller_sleeps_.load() != 0 && caller_sleeps_.exchange(0) != 0) caller_sleeps_.notify_one();
  if (tiles > 1 && sleepers_.load() > 0) wake_workers(tiles);
}

// Whether another stage than `seen` came while it was worth waiting awake.
bool ThreadPool::spin(uint32_t seen, Fetching& fetching) const {
  using Clock = std::chrono::steady_clock;
  const uint8_t* const memory = fetching.share.ahead.load(std::memory_order_relaxed);
  if (memory != fetching.memory) fetching.memory = memory, fetching.bytes = 0;
  Clock::time_point start{};
  for (bool first = true;; first = false) {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (number_of(stage_.load(std::memory_order_acquire)) != seen) return true;
      if (memory != nullptr && fetching.bytes < kAheadBytes) {
        __builtin_prefetch(memory + fetching.bytes, 0, 2);
        fetching.bytes += kLineBytes;
      } else {
        pause();
      }
    }
    const Clock::time_point now = Clock::now();
    if (first) start = now;
    if (now - start > kStayAwake) return false;
    if (now - start > kKeepProcessor) std::this_thread::yield();
  }
}

void ThreadPool::sleep_as_caller(uint32_t seen) {
  for (;;) {
    caller_sleeps_.store(1);
    if (number_of(stage_.load()) != seen) break;
    caller_sleeps_.wait(1);
  }
  caller_sleeps_.store(0);
}

void ThreadPool::sleep_as_worker(uint32_t seen) {
  int32_t sleepers = sleepers_.fetch_add(1) + 1;
  if (number_of(stage_.load()) != seen) {
    while (sleepers > 0)
      if (sleepers_.compare_exchange_weak(sleepers, sleepers - 1)) return;
    // All who sleep have been called, this one too.
  }
  uint32_t calls = calls_.load(std::memory_order_acquire);
  for (;;) {
    if (calls == 0) {
      calls_.wait(0, std::memory_order_acquire);
      calls = calls_.load(std::memory_order_acquire);
    } else if (calls_.compare_exchange_weak(calls, calls - 1, std::memory_order_acq_rel)) {
      return;
    }
  }
}

// As many as there are tiles and processors for, of those that sleep.
void ThreadPool::wake_workers(int32_t tiles) {
  int32_t sleepers = sleepers_.load();
  for (;;) {
    const int32_t awake = num_threads_ - sleepers;
    const int32_t count = std::min(std::min(tiles, cpus_) - awake, sleepers);
    if (count <= 0) return;
    if (sleepers_.compare_exchange_weak(sleepers, sleepers - count)) {
      release(count, count == sleepers);
      return;
    }
  }
}

void ThreadPool::release(int32_t count, bool all) {
  calls_.fetch_add(static_cast<uint32_t>(count), std::memory_order_acq_rel);
  if (all) {
    calls_.notify_all();
  } else {
    for (int32_t i = 0; i < count; ++i) calls_.notify_one();
  }
}

}  // namespace farthing
