// Memory nodes of machines that have several, and on which of them pages lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace farthing {

// Nodes this process may take memory from, ascending: the field Mems_allowed_list of a status file
// in /proc. Empty where there is no such file or field.
std::vector<int32_t> allowed_memory_nodes(const std::string& status_file = "/proc/self/status");

// Spreads the pages of a range that are not touched yet evenly over `nodes`. data: at a page's
// start. False, and nothing changed, where the system has no such thing or refuses.
bool interleave_pages(void* data, size_t bytes, const std::vector<int32_t>& nodes);

// Where new pages at `address` come from: "default", "interleave:0,1", another policy's number, or
// "unknown" where the system does not say.
std::string memory_policy(const void* address);

}  // namespace farthing
