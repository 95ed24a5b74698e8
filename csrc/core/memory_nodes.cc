#include "core/memory_nodes.h"

#include <fstream>

#ifdef __linux__
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace farthing {
namespace {

constexpr int32_t kMostNodes = 1024;  // of any Linux kernel
constexpr int32_t kWordBits = 8 * sizeof(unsigned long);

// The kernel's list format: "0-3,8". What is not a number below kMostNodes is left out.
std::vector<int32_t> parse_list(const std::string& text) {
  std::vector<bool> listed(kMostNodes, false);
  size_t at = 0;
  const auto number = [&]() -> int32_t {
    int32_t value = -1;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
      if (value < kMostNodes) value = (value < 0 ? 0 : value * 10) + (text[at] - '0');
    return value;
  };
  while (at < text.size()) {
    const int32_t first = number();
    int32_t last = first;
    if (at < text.size() && text[at] == '-') {
      ++at;
      last = number();
    }
    for (int32_t i = first; i >= 0 && i <= last && i < kMostNodes; ++i)
      listed[static_cast<size_t>(i)] = true;
    while (at < text.size() && (text[at] < '0' || text[at] > '9')) ++at;
  }
  std::vector<int32_t> nodes;
  for (int32_t i = 0; i < kMostNodes; ++i)
    if (listed[static_cast<size_t>(i)]) nodes.push_back(i);
  return nodes;
}

}  // namespace

std::vector<int32_t> allowed_memory_nodes(const std::string& status_file) {
  const std::string field = "Mems_allowed_list:";
  std::ifstream status(status_file);
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field)) return parse_list(line.substr(field.size()));
  return {};
}

#ifdef __linux__

bool interleave_pages(void* data, size_t bytes, const std::vector<int32_t>& nodes) {
  std::vector<unsigned long> mask(kMostNodes / kWordBits, 0);
  for (const int32_t node : nodes) {
    if (node < 0 || node >= kMostNodes) return false;
    mask[static_cast<size_t>(node / kWordBits)] |= 1UL << (node % kWordBits);
  }
  // The kernel reads one bit less than it is told.
  return syscall(SYS_mbind, data, bytes, static_cast<int>(MPOL_INTERLEAVE), mask.data(),
                 static_cast<unsigned long>(kMostNodes) + 1, 0u) == 0;
}

std::string memory_policy(const void* address) {
  int mode = 0;
  std::vector<unsigned long> mask(kMostNodes / kWordBits, 0);
  if (syscall(SYS_get_mempolicy, &mode, mask.data(), static_cast<unsigned long>(kMostNodes),
              address, static_cast<unsigned long>(MPOL_F_ADDR)) != 0)
    return "unknown";
  if (mode == MPOL_DEFAULT) return "default";
  std::string text = mode == MPOL_INTERLEAVE ? "interleave" : std::to_string(mode);
  char before = ':';
  for (int32_t i = 0; i < kMostNodes; ++i) {
    if (((mask[static_cast<size_t>(i / kWordBits)] >> (i % kWordBits)) & 1) == 0) continue;
    text += before + std::to_string(i);
    before = ',';
  }
  return text;
}

#else

bool interleave_pages(void*, size_t, const std::vector<int32_t>&) { return false; }
std::string memory_policy(const void*) { return "unknown"; }

#endif

}  // namespace farthing
