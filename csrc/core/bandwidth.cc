#include "core/bandwidth.h"

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

namespace farthing {
namespace {

constexpr size_t kPage = 4096;

size_t words_per_thread(size_t bytes, int threads) {
  if (bytes == 0) throw std::invalid_argument("bytes must be at least 1");
  if (bytes > std::numeric_limits<size_t>::max() / 2) throw std::bad_alloc();
  const size_t parts = static_cast<size_t>(threads);
  return ((bytes + parts - 1) / parts + kPage - 1) / kPage * kPage / sizeof(uint64_t);
}

// Independent sums, so that loads never wait for an addition.
uint64_t read_words(const uint64_t* words, size_t count) {
  uint64_t sums[16] = {};
  for (size_t i = 0; i < count; i += 16)
    for (size_t lane = 0; lane < 16; ++lane) sums[lane] += words[i + lane];
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

ReadRegion::ReadRegion(size_t bytes, std::shared_ptr<ThreadPool> pool)
    : pool_(std::move(pool)),
      part_words_(words_per_thread(bytes, pool_->num_threads())),
      bytes_(part_words_ * sizeof(uint64_t) * static_cast<size_t>(pool_->num_threads())),
      data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
  if (data_ == MAP_FAILED) throw std::bad_alloc();
  madvise(data_, bytes_, MADV_HUGEPAGE);
  try {
    pool_->run([this](int thread) {
      uint64_t* words = part(thread);
      for (size_t i = 0; i < part_words_; ++i) words[i] = i;
    });
  } catch (...) {  // a forked child has no workers
    munmap(data_, bytes_);
    throw;
  }
}

ReadRegion::~ReadRegion() { munmap(data_, bytes_); }

uint64_t* ReadRegion::part(int thread) const {
  return static_cast<uint64_t*>(data_) + part_words_ * static_cast<size_t>(thread);
}

double ReadRegion::read() {
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin, end;
  std::atomic<uint64_t> checksum{0};  // its use keeps the reads from being removed
  pool_->run([&](int thread) {
    pool_->barrier().wait();
    if (thread == 0) begin = Clock::now();
    checksum += read_words(part(thread), part_words_);
    pool_->barrier().wait();
    if (thread == 0) end = Clock::now();
  });
  // A wrong sum means that it did not read.
  const uint64_t count = part_words_;
  if (checksum.load() != count * (count - 1) / 2 * static_cast<uint64_t>(pool_->num_threads()))
    throw std::runtime_error("memory read back wrongly");
  return static_cast<double>(bytes_) / std::chrono::duration<double>(end - begin).count() / 1e9;
}

std::vector<double> read_bandwidth(size_t bytes, int threads, int repeats) {
  if (repeats < 1) throw std::invalid_argument("repeats must be at least 1");
  // Asleep between reads: there may be more threads than CPUs.
  ReadRegion region(bytes, std::make_shared<ThreadPool>(threads, false));
  std::vector<double> rates;
  for (int repeat = 0; repeat < repeats; ++repeat) rates.push_back(region.read());
  return rates;
}

}  // namespace farthing
