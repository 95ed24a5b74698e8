// Zeroed memory for weights, many matrices side by side on huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace farthing {

// 64-byte aligned, zero, spread over the memory nodes that the process may use. Throws
// std::bad_alloc. Matrices share large mappings, so that also small ones lie on huge pages and none
// wastes the rest of one; a mapping is returned to the system with its last matrix. Thread-safe.
std::shared_ptr<uint8_t> allocate_weights(size_t bytes);

}  // namespace farthing
