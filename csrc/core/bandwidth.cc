#include "core/bandwidth.h"

#include <sys/mman.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace farthing {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kMaxThreads = 4096;

// Anonymous memory, in huge pages where the system gives them: page walks are not bandwidth.
class Region {
 public:
  explicit Region(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    madvise(data_, bytes, MADV_HUGEPAGE);
  }
  ~Region() { munmap(data_, bytes_); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  uint64_t* words() const { return static_cast<uint64_t*>(data_); }

 private:
  void* data_;
  std::size_t bytes_;
};

void write_words(uint64_t* words, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) words[i] = i;
}

// Independent sums, so that loads never wait for an addition.
uint64_t read_words(const uint64_t* words, std::size_t count) {
  uint64_t sums[16] = {};
  for (std::size_t i = 0; i < count; i += 16)
    for (std::size_t lane = 0; lane < 16; ++lane) sums[lane] += words[i + lane];
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

std::vector<double> read_bandwidth(std::size_t bytes, int threads, int repeats) {
  if (bytes == 0) throw std::invalid_argument("bytes must be at least 1");
  if (threads < 1 || threads > kMaxThreads)
    throw std::invalid_argument("threads must be from 1 to 4096");
  if (repeats < 1) throw std::invalid_argument("repeats must be at least 1");
  const std::size_t parts = static_cast<std::size_t>(threads);
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
  const std::size_t part = ((bytes + parts - 1) / parts + kPage - 1) / kPage * kPage;
  const Region region(part * parts);

  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> marks;  // start, end, start, end, ...: one per barrier phase
  marks.reserve(2 * static_cast<std::size_t>(repeats) + 2);
  std::barrier phase(threads, [&marks]() noexcept { marks.push_back(Clock::now()); });
  std::atomic<uint64_t> checksum{0};  // its use keeps the reads from being removed
  std::atomic<int> started{0};
  std::atomic<bool> abandoned{false};

  const auto work = [&](int index) {
    ++started;
    while (started.load() < threads && !abandoned.load()) std::this_thread::yield();
    if (abandoned.load()) return;
    uint64_t* words = region.words() + static_cast<std::size_t>(index) * (part / sizeof(uint64_t));
    write_words(words, part / sizeof(uint64_t));
    for (int repeat = 0; repeat < repeats; ++repeat) {
      phase.arrive_and_wait();
      checksum += read_words(words, part / sizeof(uint64_t));
      phase.arrive_and_wait();
    }
  };
  std::vector<std::thread> team;
  team.reserve(parts);
  try {
    for (int index = 1; index < threads; ++index) team.emplace_back(work, index);
  } catch (const std::system_error&) {  // no more threads to be had
    abandoned = true;
    for (std::thread& thread : team) thread.join();
    throw;
  }
  work(0);
  for (std::thread& thread : team) thread.join();

  // What every pass must have added up to; a wrong sum means that it did not read.
  const uint64_t count = part / sizeof(uint64_t);
  const uint64_t expected = count * (count - 1) / 2 * parts * static_cast<uint64_t>(repeats);
  if (checksum.load() != expected) throw std::runtime_error("memory read back wrongly");

  std::vector<double> rates;
  rates.reserve(static_cast<std::size_t>(repeats));
  for (std::size_t i = 0; i + 1 < marks.size(); i += 2) {
    const double seconds = std::chrono::duration<double>(marks[i + 1] - marks[i]).count();
    rates.push_back(static_cast<double>(part * parts) / seconds / 1e9);
  }
  return rates;
}

}  // namespace farthing
