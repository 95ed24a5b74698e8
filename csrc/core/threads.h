// A fixed team of threads that plays one function together and meets at barriers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace farthing {

// Threads that wait spin for a while before they sleep.
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
  // num_threads includes the caller of run(). spin: whether a waiting thread keeps its CPU for a
  // while; right only where every thread has a CPU of its own. Throws std::invalid_argument unless
  // 1..kMaxThreads, std::runtime_error when the system refuses a thread.
  ThreadPool(int num_threads, bool spin);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  static constexpr int kMaxThreads = 1024;
  int num_threads() const { return num_threads_; }
  bool spin() const { return spins_ > 0; }
  // Calls work(thread) once on every thread, the caller being thread 0, in the fixed float mode;
  // returns when all have ended. One caller at a time; a second waits. `work` must not throw.
  // Throws std::runtime_error in a forked child, which has no workers.
  void run(const std::function<void(int)>& work);
  Barrier& barrier() { return barrier_; }  // for use inside `work` by all threads

 private:
  void serve(int thread);
  void stop();

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

}  // namespace farthing
