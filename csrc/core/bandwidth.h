// How fast this machine reads memory: the roof of every decode step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/threads.h"

namespace farthing {

// Memory to be read again and again, in turns with what is measured beside it: a machine's speed
// drifts, so a roof taken once tells little. On huge pages where the system gives them: page walks
// are not bandwidth.
class ReadRegion {
 public:
  // Each thread of the pool writes its own contiguous part, so that the pages are near it. `bytes`
  // is rounded up to whole 4 KiB pages per thread. Throws std::invalid_argument for 0,
  // std::bad_alloc when memory is short.
  ReadRegion(size_t bytes, std::shared_ptr<ThreadPool> pool);
  ~ReadRegion();
  ReadRegion(const ReadRegion&) = delete;
  ReadRegion& operator=(const ReadRegion&) = delete;

  // Reads it from end to end, each thread its own part. 10^9 bytes a second, the clock running from
  // the moment all threads are ready until the last one is done.
  double read();
  size_t bytes() const { return bytes_; }

 private:
  uint64_t* part(int thread) const;

  std::shared_ptr<ThreadPool> pool_;
  size_t part_words_;
  size_t bytes_;
  void* data_;
};

// The rates of `repeats` reads of a new region by a new team of threads.
std::vector<double> read_bandwidth(size_t bytes, int threads, int repeats);

}  // namespace farthing
