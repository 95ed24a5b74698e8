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
  // The pool's threads write it first, so that the pages are where those of weights would be.
  // `bytes` is rounded up to whole 4 KiB pages for each of the tiles they claim. Throws
  // std::invalid_argument for 0, std::bad_alloc when memory is short.
  ReadRegion(size_t bytes, std::shared_ptr<ThreadPool> pool);
  ~ReadRegion();
  ReadRegion(const ReadRegion&) = delete;
  ReadRegion& operator=(const ReadRegion&) = delete;

  // Reads it from end to end with all threads; 10^9 bytes a second.
  double read();
  size_t bytes() const { return bytes_; }

 private:
  uint64_t* tile(int32_t index) const;

  std::shared_ptr<ThreadPool> pool_;
  int32_t tiles_;
  size_t tile_words_;
  size_t bytes_;
  void* data_;
};

// The rates of `repeats` reads of a new region by a new team of threads.
std::vector<double> read_bandwidth(size_t bytes, int threads, int repeats);

}  // namespace farthing
