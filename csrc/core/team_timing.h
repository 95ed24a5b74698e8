// What a team of threads costs: its barriers, and its start after a pause.
#pragma once

#include <cstdint>
#include <vector>

#include "core/threads.h"

namespace farthing {

// Both measure stages of one tile for each thread that has a processor, and give up on a thread that
// does not come within 10 ms: what it would have done, another then does, and the value shows it.

// Seconds from the end of the last tile of a stage to the start of the last tile of the next, for
// each of `rounds` (positive) barriers.
std::vector<double> barrier_seconds(ThreadPool& pool, int32_t rounds);

// Seconds from the call to the start of the last tile, for each of `rounds` (positive) runs with
// `idle` seconds without work before each.
std::vector<double> start_seconds(ThreadPool& pool, int32_t rounds, double idle);

}  // namespace farthing
