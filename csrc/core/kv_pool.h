// The memory of the paged KV cache: blocks of kBlockTokens tokens, all layers together.
#pragma once

#include <cstdint>

#include "core/aligned_buffer.h"
#include "core/types.h"

namespace farthing {

class KvPool {
 public:
  // Throws std::invalid_argument on a non-positive count, std::bad_alloc without address space.
  KvPool(KvType type, int32_t num_layers, int32_t num_kv_heads, int32_t head_dim,
         int64_t num_blocks);

  const KvLayout& layout() const { return layout_; }
  int64_t num_blocks() const { return num_blocks_; }
  size_t bytes() const { return memory_.bytes(); }
  uint8_t* data() { return memory_.data(); }

  // The bytes of one block. Throws std::invalid_argument where there is none of that index.
  uint8_t* block(int64_t index);
  // Of the same block nothing changes. Throws as block().
  void copy_block(int64_t from, int64_t to);

 private:
  KvLayout layout_;
  int64_t num_blocks_;
  AlignedBuffer memory_;
};

}  // namespace farthing
