// A fixed team of threads that plays work in stages together.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace farthing {

// A stage begins when all tiles of the one before it are done; its own tiles may run in any order,
// on any threads, at once. Neither function may throw.
class StagedWork {
 public:
  // The number of tiles of a stage, 0 to skip it. Called once for each stage, in order, by whichever
  // thread ended the one before, and sees all that was done there.
  virtual int32_t begin(int32_t stage) = 0;
  // thread: from 0 below num_threads(), not used by two tiles at once.
  virtual void run(int32_t stage, int32_t tile, int thread) = 0;

 protected:
  ~StagedWork() = default;
};

// A stage's tiles are dealt out as shares of consecutive ones, which mostly lie side by side in
// memory. A thread takes its own share tile by tile, then what is left of the others'. A stage waits
// for its tiles, never for threads: one that the system has put aside, or not yet woken, holds
// nothing up unless it is inside a tile.
//
// A thread without a tile asks for the memory it will read next, spins for a while, then sleeps. Of
// a team larger than `cpus` no more than that many are awake, so that a waiting thread never takes
// the processor of a working one.
class ThreadPool {
 public:
  // num_threads includes the caller of run(). cpus: how many this process may use at once. Throws
  // std::invalid_argument unless num_threads is 1..kMaxThreads and cpus positive,
  // std::runtime_error when the system refuses a thread.
  ThreadPool(int num_threads, int cpus);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  static constexpr int kMaxThreads = 1024;
  int num_threads() const { return num_threads_; }
  int cpus() const { return cpus_; }
  // How many threads can play at once; worth cutting work for.
  int concurrency() const { return num_threads_ < cpus_ ? num_threads_ : cpus_; }
  // Threads besides the caller's that sleep and use no CPU; a moment's truth.
  int asleep() const { return sleepers_.load(std::memory_order_relaxed); }

  // A stage's tiles are cut into so many shares.
  int shares() const { return concurrency(); }
  // The first tile of a share; that of share + 1 ends it.
  int32_t share_begin(int32_t tiles, int share) const {
    return static_cast<int32_t>(int64_t{tiles} * share / shares());
  }
  // From now on a thread whose share this is fetches what lies at `memory` while it waits, until
  // another is named. Only hints to the processor are given, so it need not exist any more. Null for
  // nothing. For StagedWork::begin().
  void fetch_ahead(int share, const uint8_t* memory) {
    shares_[static_cast<size_t>(share)].ahead.store(memory, std::memory_order_relaxed);
  }

  // Plays stages 0..stages-1 in the fixed float mode, the caller being thread 0; returns when all
  // are done. One caller at a time; a second waits. Throws std::runtime_error in a forked child,
  // which has no workers.
  void run(StagedWork& work, int32_t stages);

 private:
  void serve(int thread);
  void stop();
  struct alignas(64) Share {
    // Number of a stage in the high half, how many of the share's tiles of that stage have been
    // claimed in the low one. An older stage's number: none of this one's.
    std::atomic<uint64_t> claims{0};
    alignas(64) std::atomic<const uint8_t*> ahead{nullptr};
  };
  // How far a waiting thread has come with what is ahead.
  struct Fetching {
    const Share& share;
    const uint8_t* memory = nullptr;
    size_t bytes = 0;
  };

  uint32_t play(int thread);
  Share& share_of(int thread) { return shares_[static_cast<size_t>(thread % shares())]; }
  int32_t claim(uint64_t stage, int share);
  void open(int32_t stage);
  void publish(uint32_t number, int32_t tiles);
  bool spin(uint32_t seen, Fetching& fetching) const;
  void sleep_as_caller(uint32_t seen);
  void sleep_as_worker(uint32_t seen);
  void wake_workers(int32_t tiles);
  void release(int32_t count, bool all);

  const int num_threads_;
  const int cpus_;
  const int owner_pid_;
  std::mutex in_use_;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;

  std::vector<Share> shares_;

  // Number of the open stage in the high half, how many tiles it has in the low one. Stages of one
  // run are numbered on from those of the last.
  alignas(64) std::atomic<uint64_t> stage_{0};
  alignas(64) std::atomic<int32_t> done_{0};  // tiles of the stage, told by threads that found no more

  // Written between stages by the one thread that opens the next; whoever holds a tile may read.
  alignas(64) StagedWork* work_ = nullptr;
  int32_t stages_ = 0;
  uint32_t first_ = 0;  // number of stage 0

  alignas(64) std::atomic<int32_t> sleepers_{0};   // workers that have not been called
  std::atomic<uint32_t> calls_{0};                 // to be taken by one sleeping worker each
  std::atomic<uint32_t> caller_sleeps_{0};
};

}  // namespace farthing
