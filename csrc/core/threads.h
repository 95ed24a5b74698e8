// A fixed team of threads that plays one function together and meets at barriers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace farthing {

// Threads spin for a while before they sleep, unless there are more of them than CPUs to run on.
class Barrier {
 public:
  Barrier(int32_t count, int spins) : count_(count), spins_(spins) {}
  void wait();

 private:
  const int32_t count_;
  const int spins_;
  alignas(64) std::atomic<int32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
};

// Hands out the numbers 0..n-1 to whichever thread asks next.
struct alignas(64) TileCounter {
  std::atomic<int32_t> next{0};
};

class ThreadPool {
 public:
  // num_threads includes the caller of run(). Throws std::invalid_argument unless 1..kMaxThreads.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  static constexpr int kMaxThreads = 1024;
  int num_threads() const { return num_threads_; }
  // Calls work(thread) once on every thread, the caller being thread 0, in the fixed float mode;
  // returns when all have ended. One caller at a time; a second waits. `work` must not throw.
  // Throws std::runtime_error in a forked child, which has no workers.
  void run(const std::function<void(int)>& work);
  Barrier& barrier() { return barrier_; }  // for use inside `work` by all threads

 private:
  void serve(int thread);

  const int num_threads_;
  const int spins_;
  const int owner_pid_;
  std::mutex in_use_;
  Barrier barrier_;
  Barrier finished_;
  const std::function<void(int)>* work_ = nullptr;
  alignas(64) std::atomic<uint32_t> start_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

// CPUs this process may run on (its affinity mask), at least 1.
int allowed_cpus();

}  // namespace farthing
