// How fast this machine reads memory: the roof of every decode step.
#pragma once

#include <cstddef>
#include <vector>

namespace farthing {

// Reads `bytes` of memory from end to end `repeats` times with `threads` threads, each its own
// contiguous part, which it also wrote first so that the pages are near it. Returns 10^9 bytes a
// second of each repeat, the clock running from the moment all threads are ready until the last
// one is done. `bytes` is rounded up to whole 4 KiB pages per thread.
// Throws std::invalid_argument for zero counts, std::bad_alloc when memory is short.
std::vector<double> read_bandwidth(std::size_t bytes, int threads, int repeats);

}  // namespace farthing
