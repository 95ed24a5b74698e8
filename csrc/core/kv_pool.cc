#include "core/kv_pool.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "core/checked_size.h"

namespace farthing {
namespace {

struct NamedTypes {
  const char* name;
  KvType keys, values;
};
constexpr NamedTypes kNamedTypes[] = {
    {"fp32", KvType::f32, KvType::f32}, {"fp16", KvType::f16, KvType::f16},
    {"int8", KvType::i8, KvType::i8},   {"int4", KvType::i4, KvType::i4},
    {"k16v8", KvType::f16, KvType::i8}, {"k16v4", KvType::f16, KvType::i4},
    {"k8v4", KvType::i8, KvType::i4},
};

NamedTypes types_of(const std::string& dtype) {
  std::string names;
  for (const NamedTypes& types : kNamedTypes) {
    if (dtype == types.name) return types;
    names += (names.empty() ? "" : ", ") + std::string(types.name);
  }
  throw std::invalid_argument("dtype='" + dtype + "' must be one of " + names);
}

void require(bool good, const char* name, int64_t value, const char* right) {
  if (!good)
    throw std::invalid_argument(std::string(name) + "=" + std::to_string(value) + " must be " +
                                right);
}

}  // namespace

KvLayout kv_layout(const std::string& dtype, int32_t num_layers, int32_t num_kv_heads,
                   int32_t head_dim) {
  const NamedTypes types = types_of(dtype);
  require(num_layers > 0, "num_layers", num_layers, "positive");
  require(num_kv_heads > 0, "num_kv_heads", num_kv_heads, "positive");
  require(head_dim > 0 && head_dim % kLanes == 0, "head_dim", head_dim, "a multiple of 16");
  const KvLayout layout{types.keys, types.values, num_layers, num_kv_heads, head_dim};
  (void)checked_product({layout.head_bytes(), static_cast<size_t>(num_layers),
                         static_cast<size_t>(num_kv_heads)});  // as block_bytes(), which trusts them
  return layout;
}

KvPool::KvPool(const KvLayout& layout, int64_t num_blocks)
    : layout_(layout), num_blocks_(num_blocks) {
  require(num_blocks > 0, "num_blocks", num_blocks, "positive");
  memory_ = AlignedBuffer(
      checked_product({layout_.block_bytes(), static_cast<size_t>(num_blocks)}));
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
