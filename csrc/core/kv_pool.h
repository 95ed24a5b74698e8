// The memory of the paged KV cache: blocks of kBlockTokens tokens, all layers together.
#pragma once

#include <cstdint>
#include <string>

#include "core/aligned_buffer.h"
#include "core/kv_layout.h"

namespace farthing {

// The layout of a cache of a type by its name (src/farthing/program/kv_types.py). Throws
// std::invalid_argument naming what is unknown, not positive or no multiple of 16, and
// std::bad_alloc where block_bytes() would not fit a size_t.
KvLayout kv_layout(const std::string& dtype, int32_t num_layers, int32_t num_kv_heads,
                   int32_t head_dim);

class KvPool {
 public:
  // Throws std::invalid_argument without a block, std::bad_alloc without address space.
  KvPool(const KvLayout& layout, int64_t num_blocks);

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
