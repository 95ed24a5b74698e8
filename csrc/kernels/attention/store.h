// Rounding a token's keys and values into its KV block.
#pragma once

#include "core/lanes.h"
#include "core/types.h"

namespace farthing::FARTHING_ISA {

template <class Element>
inline void store_heads(const KvLayout& layout, uint8_t* pool, int32_t layer, int32_t block,
                        int32_t slot, const float* k, const float* v) {
  const int32_t dim = layout.head_dim;
  for (int32_t h = 0; h < layout.num_kv_heads; ++h) {
    uint8_t* plane = pool + layout.offset(block, layer, h);
    Element* keys = reinterpret_cast<Element*>(plane) + slot;  // [dim][token]
    Element* values = reinterpret_cast<Element*>(plane + layout.plane_bytes()) +
                      static_cast<size_t>(slot) * dim;  // [token][dim]
    for (int32_t d = 0; d < dim; d += 16) {
      Element column[16];
      store(column, load(k + static_cast<size_t>(h) * dim + d));
      for (int i = 0; i < 16; ++i) keys[static_cast<size_t>(d + i) * kBlockTokens] = column[i];
      store(values + d, load(v + static_cast<size_t>(h) * dim + d));
    }
  }
}

inline void store_kv(const KvLayout& layout, uint8_t* pool, int32_t layer, int32_t block,
                     int32_t slot, const float* k, const float* v) {
  if (layout.type == KvType::f16)
    store_heads<Half>(layout, pool, layer, block, slot, k, v);
  else
    store_heads<float>(layout, pool, layer, block, slot, k, v);
}

}  // namespace farthing::FARTHING_ISA
