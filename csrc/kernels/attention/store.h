// Rounding a token's keys and values into its KV block.
#pragma once

#include <bit>
#include <cstring>

#include "core/kv_layout.h"
#include "core/lanes.h"
#include "kernels/attention/elements.h"

namespace farthing::FARTHING_ISA {

// Rounded numbers before they are put in their places: codes a byte each.
template <class Element>
using Rounded = std::conditional_t<kIsNibbles<Element>, int8_t, Element>;

// Sixteen dims from d on of the token in `slot`.
template <class Element>
FARTHING_INLINE void put_keys(uint8_t* plane, int32_t slot, int32_t d,
                              const Rounded<Element>* dims) {
  Rounded<Element>* column =
      reinterpret_cast<Rounded<Element>*>(plane) + d / kRowDims<Element> * kBlockTokens + slot;
  for (int i = 0; i < 16 / kRowDims<Element>; ++i) {
    if constexpr (kIsNibbles<Element>)
      column[i * kBlockTokens] = static_cast<int8_t>((dims[2 * i] & 15) | dims[2 * i + 1] << 4);
    else
      column[i * kBlockTokens] = dims[i];
  }
}

template <class Element>
FARTHING_INLINE void put_values(uint8_t* token, int32_t d, const Rounded<Element>* dims) {
  uint8_t* target = token + bytes_of<Element>(d);
  if constexpr (kIsNibbles<Element>) {
    uint32_t words[2] = {};
    for (int i = 0; i < 16; ++i) words[i % 2] |= static_cast<uint32_t>(dims[i] & 15) << i / 2 * 4;
    std::memcpy(target, words, sizeof words);
  } else {
    std::memcpy(target, dims, 16 * sizeof(Element));
  }
}

// Calls put(d, rounded) for each sixteen of one head's numbers; returns the scale of codes.
template <class Element, class Put>
FARTHING_INLINE float round_head(const float* x, int32_t dim, Put put) {
  Rounded<Element> dims[16];
  if constexpr (kIsCodes<Element>) {
    constexpr float kLargestCode = kIsNibbles<Element> ? 7.0f : 127.0f;
    // Magnitudes compare as integers; so compared, infinities and NaNs are the largest.
    int32_t largest = 0;
    for (int32_t d = 0; d < dim; ++d) {
      const int32_t magnitude = std::bit_cast<int32_t>(x[d]) & 0x7fffffff;
      largest = magnitude > largest ? magnitude : largest;
    }
    const float absmax = std::bit_cast<float>(largest);
    const bool finite = largest < 0x7f800000, usable = finite && !(absmax < 1e-30f);
    const Lanes inverse = broadcast(usable ? kLargestCode / absmax : 0.0f);
    for (int32_t d = 0; d < dim; d += 16) {
      store_bytes(dims, usable ? round_to_int(load(x + d) * inverse) : broadcast_int(0));
      put(d, dims);
    }
    return finite && !usable ? 0.0f : absmax / kLargestCode;
  } else {
    for (int32_t d = 0; d < dim; d += 16) {
      store(dims, load(x + d));
      put(d, dims);
    }
    return 0.0f;
  }
}

inline void store_kv(const KvLayout& layout, uint8_t* pool, int32_t layer, int32_t block,
                     int32_t slot, const float* k, const float* v) {
  const int32_t dim = layout.head_dim;
  for (int32_t h = 0; h < layout.num_kv_heads; ++h) {
    uint8_t* keys = pool + layout.offset(block, layer, h);
    uint8_t* values = keys + layout.values_offset();
    const size_t head = static_cast<size_t>(h) * dim;
    with_element(layout.keys, [&]<class Key>() {
      const float scale = round_head<Key>(k + head, dim, [&](int32_t d, const Rounded<Key>* dims) {
        put_keys<Key>(keys, slot, d, dims);
      });
      if constexpr (kIsCodes<Key>)
        reinterpret_cast<float*>(keys + layout.key_scales_offset())[slot] = scale;
    });
    with_element(layout.values, [&]<class Value>() {
      uint8_t* token = values + static_cast<size_t>(slot) * bytes_of<Value>(dim);
      const float scale =
          round_head<Value>(v + head, dim, [&](int32_t d, const Rounded<Value>* dims) {
            put_values<Value>(token, d, dims);
          });
      if constexpr (kIsCodes<Value>)
        reinterpret_cast<float*>(keys + layout.value_scales_offset())[slot] = scale;
    });
  }
}

}  // namespace farthing::FARTHING_ISA
