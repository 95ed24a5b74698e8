// Rounding a token's keys and values into its KV block.
#pragma once

#include <bit>

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

// Codes of one head's numbers; returns their scale.
inline float round_to_codes(const float* x, int32_t dim, int8_t* codes) {
  // Magnitudes compare as integers; so compared, infinities and NaNs are the largest.
  int32_t largest = 0;
  for (int32_t d = 0; d < dim; ++d) {
    const int32_t magnitude = std::bit_cast<int32_t>(x[d]) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  const float absmax = std::bit_cast<float>(largest);
  const bool finite = largest < 0x7f800000;
  if (!finite || absmax < 1e-30f) {
    for (int32_t d = 0; d < dim; d += 16) store_bytes(codes + d, broadcast_int(0));
    return finite ? 0.0f : absmax / 127.0f;
  }
  const Lanes inverse = broadcast(127.0f / absmax);
  for (int32_t d = 0; d < dim; d += 16) store_bytes(codes + d, round_to_int(load(x + d) * inverse));
  return absmax / 127.0f;
}

inline void store_codes(const KvLayout& layout, uint8_t* pool, int32_t layer, int32_t block,
                        int32_t slot, const float* k, const float* v) {
  const int32_t dim = layout.head_dim;
  for (int32_t h = 0; h < layout.num_kv_heads; ++h) {
    uint8_t* plane = pool + layout.offset(block, layer, h);
    int8_t* keys = reinterpret_cast<int8_t*>(plane) + slot;
    int8_t* values = reinterpret_cast<int8_t*>(plane + layout.plane_bytes()) +
                     static_cast<size_t>(slot) * dim;
    float* scales = reinterpret_cast<float*>(plane + 2 * layout.plane_bytes()) + slot;
    const size_t head = static_cast<size_t>(h) * dim;
    // The row of values holds the keys' codes first, which are then spread over their plane.
    scales[0] = round_to_codes(k + head, dim, values);
    for (int32_t d = 0; d < dim; ++d) keys[static_cast<size_t>(d) * kBlockTokens] = values[d];
    scales[kBlockTokens] = round_to_codes(v + head, dim, values);
  }
}

inline void store_kv(const KvLayout& layout, uint8_t* pool, int32_t layer, int32_t block,
                     int32_t slot, const float* k, const float* v) {
  if (layout.type == KvType::f16)
    store_heads<Half>(layout, pool, layer, block, slot, k, v);
  else if (layout.type == KvType::i8)
    store_codes(layout, pool, layer, block, slot, k, v);
  else
    store_heads<float>(layout, pool, layer, block, slot, k, v);
}

}  // namespace farthing::FARTHING_ISA
