// Sizes of memory whose factors come from outside.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <new>

namespace farthing {

// Throws std::bad_alloc where the product does not fit: no machine has that memory.
inline size_t checked_product(std::initializer_list<size_t> factors) {
  size_t product = 1;
  for (size_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product)) throw std::bad_alloc();
  return product;
}

}  // namespace farthing
