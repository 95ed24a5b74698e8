#include "core/bandwidth.h"

#include <sys/mman.h>

#include <atomic>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/timed_tiles.h"

namespace farthing {
namespace {

constexpr size_t kPage = 4096;

// Few enough that each is a long stream, enough that no thread waits long for another.
constexpr int32_t kTilesPerThread = 8;

size_t words_per_tile(size_t bytes, int32_t tiles) {
  if (bytes == 0) throw std::invalid_argument("bytes must be at least 1");
  if (bytes > std::numeric_limits<size_t>::max() / 2) throw std::bad_alloc();
  const size_t count = static_cast<size_t>(tiles);
  return ((bytes + count - 1) / count + kPage - 1) / kPage * kPage / sizeof(uint64_t);
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
      tiles_(kTilesPerThread * pool_->num_threads()),
      tile_words_(words_per_tile(bytes, tiles_)),
      bytes_(tile_words_ * sizeof(uint64_t) * static_cast<size_t>(tiles_)),
      data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
  if (data_ == MAP_FAILED) throw std::bad_alloc();
  madvise(data_, bytes_, MADV_HUGEPAGE);
  try {
    timed_tiles(*pool_, tiles_, [this](int32_t index) {
      uint64_t* words = tile(index);
      for (size_t i = 0; i < tile_words_; ++i) words[i] = i;
    });
  } catch (...) {  // a forked child has no workers
    munmap(data_, bytes_);
    throw;
  }
}

ReadRegion::~ReadRegion() { munmap(data_, bytes_); }

uint64_t* ReadRegion::tile(int32_t index) const {
  return static_cast<uint64_t*>(data_) + tile_words_ * static_cast<size_t>(index);
}

double ReadRegion::read() {
  std::atomic<uint64_t> checksum{0};  // its use keeps the reads from being removed
  const double seconds = timed_tiles(
      *pool_, tiles_, [&](int32_t index) { checksum += read_words(tile(index), tile_words_); });
  // A wrong sum means that it did not read.
  const uint64_t count = tile_words_;
  if (checksum.load() != count * (count - 1) / 2 * static_cast<uint64_t>(tiles_))
    throw std::runtime_error("memory read back wrongly");
  return static_cast<double>(bytes_) / seconds / 1e9;
}

std::vector<double> read_bandwidth(size_t bytes, int threads, int repeats) {
  if (repeats < 1) throw std::invalid_argument("repeats must be at least 1");
  // Asleep between reads: there may be more threads than CPUs.
  ReadRegion region(bytes, std::make_shared<ThreadPool>(threads, threads));
  std::vector<double> rates;
  for (int repeat = 0; repeat < repeats; ++repeat) rates.push_back(region.read());
  return rates;
}

}  // namespace farthing
