// Register tiles: several query vectors against one block's keys or values, each key or value
// loaded once for all of them. Every vector's chain is its own, so tiles never change its bits.
#pragma once

#include "core/lanes.h"
#include "core/types.h"
#include "kernels/attention/scratch.h"

#define FARTHING_UNROLL _Pragma("GCC unroll 16")

namespace farthing::FARTHING_ISA {

// scores[r][t] = chain over d of q[r][d] * k[d][t]. queries: [head_dim][kQueryVectors].
template <int kRows, class Element>
inline void score_tile(const Element* keys, const float* queries, int32_t head_dim,
                       float* scores) {
  Lanes s[kRows];
  FARTHING_UNROLL
  for (int r = 0; r < kRows; ++r) s[r] = zero();
  for (int32_t d = 0; d < head_dim; ++d) {
    const Lanes k = load(keys);
    FARTHING_UNROLL
    for (int r = 0; r < kRows; ++r) s[r] = fma(broadcast(queries[r]), k, s[r]);
    keys += kBlockTokens;
    queries += kQueryVectors;
  }
  FARTHING_UNROLL
  for (int r = 0; r < kRows; ++r) store(scores + r * kBlockTokens, s[r]);
}

// acc[r] = acc[r] * factors[r], then the chain over t in [low, high) of p[r][t] * v[t].
template <int kRows, class Element>
inline void value_tile(const Element* values, int32_t head_dim, int32_t low, int32_t high,
                       const float* p, const float* factors, float* acc) {
  for (int32_t d = 0; d < head_dim; d += 16) {
    Lanes a[kRows];
    FARTHING_UNROLL
    for (int r = 0; r < kRows; ++r)
      a[r] = load(acc + static_cast<size_t>(r) * head_dim + d) * broadcast(factors[r]);
    for (int32_t t = low; t < high; ++t) {
      const Lanes v = load(values + static_cast<size_t>(t) * head_dim + d);
      FARTHING_UNROLL
      for (int r = 0; r < kRows; ++r) a[r] = fma(broadcast(p[r * kBlockTokens + t]), v, a[r]);
    }
    FARTHING_UNROLL
    for (int r = 0; r < kRows; ++r) store(acc + static_cast<size_t>(r) * head_dim + d, a[r]);
  }
}

// Calls tile<R>(first) for consecutive pieces of `rows` vectors, each of R <= kRegisterRows.
template <int kRows = kRegisterRows, class Tile>
FARTHING_INLINE void with_rows(int32_t rows, int32_t first, Tile& tile) {
  if (rows == kRows)
    tile.template operator()<kRows>(first);
  else if constexpr (kRows > 1)
    with_rows<kRows - 1>(rows, first, tile);
}

template <class Tile>
FARTHING_INLINE void each_tile(int32_t rows, Tile tile) {
  int32_t first = 0;
  while (rows > 0) {
    const int32_t n = rows >= 2 * kRegisterRows ? kRegisterRows
                      : rows > kRegisterRows    ? (rows + 1) / 2
                                                : rows;
    with_rows(n, first, tile);
    first += n;
    rows -= n;
  }
}

}  // namespace farthing::FARTHING_ISA
