// Stored keys and values as lanes: what differs from type to type when they are read.
#pragma once

#include <type_traits>

#include "core/kv_layout.h"
#include "core/lanes.h"

namespace farthing::FARTHING_ISA {

// Codes of 4 bits, two to a byte.
struct Nibbles {};

template <class Element>
inline constexpr bool kIsNibbles = std::is_same_v<Element, Nibbles>;
template <class Element>
inline constexpr bool kIsCodes = kIsNibbles<Element> || std::is_same_v<Element, int8_t>;
template <class Element>
inline constexpr int kElementBits = kIsNibbles<Element> ? 4 : 8 * sizeof(Element);
// Dims that a row of keys holds of each token.
template <class Element>
inline constexpr int kRowDims = kIsNibbles<Element> ? 2 : 1;

// Bytes of so many numbers, an even count.
template <class Element>
FARTHING_INLINE size_t bytes_of(int32_t count) {
  return static_cast<size_t>(count) * kElementBits<Element> / 8;
}

// Calls visit.template operator()<Element>() for the type.
template <class Visit>
FARTHING_INLINE void with_element(KvType type, Visit visit) {
  switch (type) {
    case KvType::f32: visit.template operator()<float>(); break;
    case KvType::f16: visit.template operator()<Half>(); break;
    case KvType::i8: visit.template operator()<int8_t>(); break;
    case KvType::i4: visit.template operator()<Nibbles>(); break;
  }
}

// A row of keys; lanes are tokens.
template <class Element>
FARTHING_INLINE void load_keys(const uint8_t* row, Lanes (&keys)[kRowDims<Element>]) {
  if constexpr (kIsNibbles<Element>)
    load_nibble_pairs(row, keys[0], keys[1]);
  else
    keys[0] = load(reinterpret_cast<const Element*>(row));
}

// Sixteen dims of a token's values; lanes are dims.
template <class Element>
FARTHING_INLINE Lanes load_values(const uint8_t* p) {
  if constexpr (kIsNibbles<Element>)
    return load_nibbles(p);
  else
    return load(reinterpret_cast<const Element*>(p));
}

}  // namespace farthing::FARTHING_ISA
