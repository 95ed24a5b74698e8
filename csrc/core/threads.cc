#include "core/threads.h"


#include <unistd.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "core/float_mode.h"
#include "core/pause.h"

namespace farthing {
namespace {

// About 50 microseconds of pauses: longer than any gap between the ops of a step, short enough
// that an idle server costs nothing.
constexpr int kSpins = 2000;

void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

int checked_thread_count(int n) {
  if (n < 1 || n > ThreadPool::kMaxThreads)
    throw std::invalid_argument("num_threads=" + std::to_string(n) + " must be from 1 to " +
                                std::to_string(ThreadPool::kMaxThreads));
  return n;
}

}  // namespace

void Barrier::wait() {
  const uint32_t generation = generation_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  } else {
    wait_for_change(generation_, generation, spins_);
  }
}

ThreadPool::ThreadPool(int num_threads, bool spin)
    : num_threads_(checked_thread_count(num_threads)),
      spins_(spin ? kSpins : 0),
      owner_pid_(getpid()),
      barrier_(num_threads, spins_),
      finished_(num_threads, spins_) {
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
  start_.fetch_add(1, std::memory_order_release);
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::serve(int thread) {
  const FloatMode mode;
  uint32_t seen = 0;
  for (;;) {
    wait_for_change(start_, seen, spins_);
    ++seen;
    if (stopping_.load(std::memory_order_relaxed)) return;
    (*work_)(thread);
    finished_.wait();
  }
}

void ThreadPool::run(const std::function<void(int)>& work) {
  if (getpid() != owner_pid_)
    throw std::runtime_error("a model cannot be used in a forked child; load it there again");
  const std::lock_guard<std::mutex> lock(in_use_);
  const FloatMode mode;
  work_ = &work;
  start_.fetch_add(1, std::memory_order_release);
  start_.notify_all();
  work(0);
  finished_.wait();
}

}  // namespace farthing
