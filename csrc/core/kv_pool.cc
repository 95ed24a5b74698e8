#include "core/kv_pool.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "core/checked_size.h"

namespace farthing {
namespace {

KvLayout checked(KvType type, int32_t num_layers, int32_t num_kv_heads, int32_t head_dim) {
  const auto require = [](bool good, const char* name, int64_t value, const char* right) {
    if (!good)
      throw std::invalid_argument(std::string(name) + "=" + std::to_string(value) + " must be " +
                                  right);
  };
  require(num_layers > 0, "num_layers", num_layers, "positive");
  require(num_kv_heads > 0, "num_kv_heads", num_kv_heads, "positive");
  require(head_dim > 0 && head_dim % kLanes == 0, "head_dim", head_dim, "a multiple of 16");
  return KvLayout{type, num_layers, num_kv_heads, head_dim};
}

}  // namespace

KvPool::KvPool(KvType type, int32_t num_layers, int32_t num_kv_heads, int32_t head_dim,
               int64_t num_blocks)
    : layout_(checked(type, num_layers, num_kv_heads, head_dim)), num_blocks_(num_blocks) {
  if (num_blocks <= 0)
    throw std::invalid_argument("num_blocks=" + std::to_string(num_blocks) + " must be positive");
  // As layout_.block_bytes(), which trusts its sizes.
  memory_ = AlignedBuffer(checked_product({layout_.head_bytes(), static_cast<size_t>(num_layers),
                                           static_cast<size_t>(num_kv_heads),
                                           static_cast<size_t>(num_blocks)}));
}

uint8_t* KvPool::block(int64_t index) {
  if (index < 0 || index >= num_blocks_)
    throw std::invalid_argument("block=" + std::to_string(index) + " must be from 0 below " +
                                std::to_string(num_blocks_));
  return memory_.data() + static_cast<size_t>(index) * layout_.block_bytes();
}

void KvPool::copy_block(int64_t from, int64_t to) {
  const uint8_t* source = block(from);
  uint8_t* target = block(to);
  if (source != target) std::memcpy(target, source, layout_.block_bytes());
}

}  // namespace farthing
