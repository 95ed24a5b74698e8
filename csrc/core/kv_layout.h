// How keys and values lie in a block of the KV cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/inline.h"
#include "core/types.h"

namespace farthing {

// What keys, or values, are stored as. i8, i4: codes in -127..127 or -7..7 with a float32 scale for
// each token and kv head.
enum class KvType : int32_t { f16, f32, i8, i4 };

static constexpr int kv_bits(KvType type) {
  switch (type) {
    case KvType::f32: return 32;
    case KvType::f16: return 16;
    case KvType::i8: return 8;
    case KvType::i4: return 4;
  }
  return 0;
}

static constexpr bool has_scales(KvType type) { return kv_bits(type) <= 8; }

// One KV block holds kBlockTokens tokens of every layer. Inside, for layer, for kv head:
//   the plane of K, transposed [head_dim][kBlockTokens], then that of V [kBlockTokens][head_dim],
//   then the kBlockTokens scales of K if its type has any, and those of V likewise.
// Every part starts at a multiple of 64 bytes, since head_dim is one of 16.
//
// Codes of i4 are two's complement, two to a byte. No byte is shared by two tokens, which may be
// stored by two threads:
//   K  row j of kBlockTokens bytes holds dims 2j and 2j + 1 in the low and high halves
//   V  each 16 dims of a token are two words of 32 bits, of which the first holds the even dims and
//      the second the odd ones, ascending from the low bits
struct KvLayout {
  KvType keys;
  KvType values;
  int32_t num_layers;
  int32_t num_kv_heads;
  int32_t head_dim;

  FARTHING_INLINE size_t plane_bytes(KvType type) const {
    return static_cast<size_t>(kv_bits(type)) * kBlockTokens * static_cast<size_t>(head_dim) / 8;
  }
  static constexpr size_t scales_bytes(KvType type) {
    return has_scales(type) ? kBlockTokens * sizeof(float) : 0;
  }
  // From K of a block, layer and head to the parts that follow it, and to the next head's K.
  FARTHING_INLINE size_t values_offset() const { return plane_bytes(keys); }
  FARTHING_INLINE size_t key_scales_offset() const { return values_offset() + plane_bytes(values); }
  FARTHING_INLINE size_t value_scales_offset() const {
    return key_scales_offset() + scales_bytes(keys);
  }
  FARTHING_INLINE size_t head_bytes() const { return value_scales_offset() + scales_bytes(values); }
  FARTHING_INLINE size_t block_bytes() const {
    return head_bytes() * static_cast<size_t>(num_layers) * static_cast<size_t>(num_kv_heads);
  }
  // Offset of K of (block, layer, head) in the pool.
  FARTHING_INLINE size_t offset(int64_t block, int32_t layer, int32_t head) const {
    return static_cast<size_t>(block) * block_bytes() +
           head_bytes() * (static_cast<size_t>(layer) * num_kv_heads + static_cast<size_t>(head));
  }
};

}  // namespace farthing
