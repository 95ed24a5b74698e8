#include "core/weight_arena.h"

#include <sys/mman.h>

#include <mutex>
#include <new>

#include "core/memory_nodes.h"

namespace farthing {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMappingBytes = size_t{64} << 20;

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// Any thread may read any weight, so where memory has several nodes each gets an equal part: their
// bandwidths add up, and no node serves all processors.
void place(void* data, size_t bytes) {
  static const std::vector<int32_t> nodes = allowed_memory_nodes();
  if (nodes.size() > 1) (void)interleave_pages(data, bytes, nodes);  // else they lie as they come
}

class Mapping {
 public:
  explicit Mapping(size_t bytes) : mapped_(bytes + kHugePage), bytes_(bytes) {
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    const uintptr_t start = round_up(reinterpret_cast<uintptr_t>(base_), kHugePage);
    data_ = reinterpret_cast<uint8_t*>(start);
    // Advice only: where huge pages are off, ordinary ones serve.
    (void)madvise(data_, bytes_, MADV_HUGEPAGE);
    place(data_, bytes_);
  }
  ~Mapping() { munmap(base_, mapped_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  size_t free_bytes() const { return bytes_ - used_; }
  uint8_t* take(size_t bytes) {
    uint8_t* p = data_ + used_;
    used_ += bytes;
    return p;
  }

 private:
  void* base_;
  uint8_t* data_;
  size_t mapped_;
  size_t bytes_;
  size_t used_ = 0;
};

}  // namespace

std::shared_ptr<uint8_t> allocate_weights(size_t bytes) {
  static std::mutex mutex;
  static std::weak_ptr<Mapping> open;  // the mapping that still has room
  bytes = round_up(bytes, 64);
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Mapping> mapping = open.lock();
  if (mapping == nullptr || mapping->free_bytes() < bytes) {
    const bool alone = bytes >= kMappingBytes / 2;
    mapping = std::make_shared<Mapping>(alone ? round_up(bytes, kHugePage) : kMappingBytes);
    if (!alone) open = mapping;
  }
  uint8_t* data = mapping->take(bytes);
  return {std::move(mapping), data};
}

}  // namespace farthing
