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

// The same of a sum.
inline size_t checked_sum(size_t a, size_t b) {
  size_t sum;
  if (__builtin_add_overflow(a, b, &sum)) throw std::bad_alloc();
  return sum;
}

}  // namespace farthing
