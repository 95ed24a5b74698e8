// Register tiles: several query vectors against the keys or values of one or more blocks, each key
// or value loaded once for all of them. Every vector's chain is its own and is walked in the same
// order in every tile, so tiles never change a bit.
#pragma once

#include "core/lanes.h"
#include "core/types.h"
#include "kernels/attention/elements.h"
#include "kernels/attention/scratch.h"

#define FARTHING_UNROLL _Pragma("GCC unroll 16")

namespace farthing::FARTHING_ISA {

// The planes of the blocks of one step. Blocks lie far apart, so hardware does not guess the next
// one: each key or value read also fetches the one at the same place `ahead` bytes on, in a block
// whose turn comes later. It is fetched into the second-level cache: the first one's few slots for
// misses are needed by the loads themselves.
struct Blocks {
  const uint8_t* keys[kMostBlocks];
  const uint8_t* values[kMostBlocks];
  ptrdiff_t ahead[kMostBlocks];
};

FARTHING_INLINE void fetch_ahead(const uint8_t* p, ptrdiff_t ahead) {
  __builtin_prefetch(p + ahead, 0, 2);
}

// scores[b][r][t] = chain over d of q[r][d] * k[b][d][t], for kBlocks blocks from block `first` of
// the step; block b's rows start at scores + b * block_stride. queries: [head_dim][kQueryVectors].
template <int kRows, int kBlocks, bool kAhead, class Key>
FARTHING_INLINE void score_blocks(const Blocks& blocks, int32_t first, const float* queries,
                                  int32_t head_dim, float* scores, int32_t block_stride) {
  constexpr int kDims = kRowDims<Key>;
  Lanes s[kBlocks][kRows];
  FARTHING_UNROLL
  for (int b = 0; b < kBlocks; ++b) {
    FARTHING_UNROLL
    for (int r = 0; r < kRows; ++r) s[b][r] = zero();
  }
  for (int32_t row = 0; row < head_dim / kDims; ++row) {
    // Broadcasts are kept for several blocks; for one they would only take registers.
    Lanes q[kDims][kRows];
    if constexpr (kBlocks > 1) {
      FARTHING_UNROLL
      for (int i = 0; i < kDims; ++i) {
        FARTHING_UNROLL
        for (int r = 0; r < kRows; ++r) q[i][r] = broadcast(queries[i * kQueryVectors + r]);
      }
    }
    FARTHING_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const uint8_t* keys = blocks.keys[first + b] + row * bytes_of<Key>(kDims * kBlockTokens);
      if constexpr (kAhead) fetch_ahead(keys, blocks.ahead[first + b]);
      Lanes k[kDims];
      load_keys<Key>(keys, k);
      FARTHING_UNROLL
      for (int i = 0; i < kDims; ++i) {
        FARTHING_UNROLL
        for (int r = 0; r < kRows; ++r) {
          if constexpr (kBlocks == 1) q[i][r] = broadcast(queries[i * kQueryVectors + r]);
          s[b][r] = fma(q[i][r], k[i], s[b][r]);
        }
      }
    }
    queries += kDims * kQueryVectors;
  }
  FARTHING_UNROLL
  for (int b = 0; b < kBlocks; ++b) {
    float* target = scores + (first + b) * block_stride;
    FARTHING_UNROLL
    for (int r = 0; r < kRows; ++r) store(target + r * kBlockTokens, s[b][r]);
  }
}

template <int kRows, bool kAhead, class Key>
inline void score_tile(const Blocks& blocks, int32_t num_blocks, const float* queries,
                       int32_t head_dim, float* scores, int32_t block_stride) {
  constexpr int kTogether = register_blocks(kRows);
  int32_t b = 0;
  for (; b + kTogether <= num_blocks; b += kTogether)
    score_blocks<kRows, kTogether, kAhead, Key>(blocks, b, queries, head_dim, scores, block_stride);
  if constexpr (kTogether > 1)
    for (; b < num_blocks; ++b)
      score_blocks<kRows, 1, kAhead, Key>(blocks, b, queries, head_dim, scores, block_stride);
}

// What the values of a step are weighted with: p[b][r][t], tokens [low, high) visible, and the
// factors[b][r] that acc is multiplied by before; block b's rows start at b * padded.
struct Weights {
  const float* p;
  const float* factors;
  int32_t padded;
  int32_t low, high;

  Weights from(int32_t vector) const {
    return {p + vector * kBlockTokens, factors + vector, padded, low, high};
  }
};

template <int kRows, int kColumns, bool kAhead, class Value>
FARTHING_INLINE void value_columns(const Blocks& blocks, int32_t num_blocks, int32_t head_dim,
                                   const Weights& weights, int32_t column, float* acc) {
  Lanes a[kRows][kColumns];
  FARTHING_UNROLL
  for (int r = 0; r < kRows; ++r) {
    FARTHING_UNROLL
    for (int c = 0; c < kColumns; ++c)
      a[r][c] = load(acc + static_cast<size_t>(r) * head_dim + column + c * 16);
  }
  for (int32_t b = 0; b < num_blocks; ++b) {
    const float* p = weights.p + b * weights.padded * kBlockTokens;
    const float* factors = weights.factors + b * weights.padded;
    const uint8_t* values = blocks.values[b] + bytes_of<Value>(column);
    FARTHING_UNROLL
    for (int r = 0; r < kRows; ++r) {
      FARTHING_UNROLL
      for (int c = 0; c < kColumns; ++c) a[r][c] = a[r][c] * broadcast(factors[r]);
    }
    for (int32_t t = weights.low; t < weights.high; ++t) {
      const uint8_t* token = values + static_cast<size_t>(t) * bytes_of<Value>(head_dim);
      Lanes weight[kRows];
      if constexpr (kColumns > 1) {
        FARTHING_UNROLL
        for (int r = 0; r < kRows; ++r) weight[r] = broadcast(p[r * kBlockTokens + t]);
      }
      FARTHING_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        if constexpr (kAhead)
          if (bytes_of<Value>(c * 16) % 64 == 0)
            fetch_ahead(token + bytes_of<Value>(c * 16), blocks.ahead[b]);
        const Lanes v = load_values<Value>(token + bytes_of<Value>(c * 16));
        FARTHING_UNROLL
        for (int r = 0; r < kRows; ++r) {
          if constexpr (kColumns == 1) weight[r] = broadcast(p[r * kBlockTokens + t]);
          a[r][c] = fma(weight[r], v, a[r][c]);
        }
      }
    }
  }
  FARTHING_UNROLL
  for (int r = 0; r < kRows; ++r) {
    FARTHING_UNROLL
    for (int c = 0; c < kColumns; ++c)
      store(acc + static_cast<size_t>(r) * head_dim + column + c * 16, a[r][c]);
  }
}

// For each block: acc[r] = acc[r] * factors[r], then the chain over visible t of p[r][t] * v[t].
template <int kRows, bool kAhead, class Value>
inline void value_tile(const Blocks& blocks, int32_t num_blocks, int32_t head_dim,
                       const Weights& weights, float* acc) {
  constexpr int kColumns = register_columns(kRows);
  int32_t column = 0;
  for (; column + kColumns * 16 <= head_dim; column += kColumns * 16)
    value_columns<kRows, kColumns, kAhead, Value>(blocks, num_blocks, head_dim, weights, column, acc);
  if constexpr (kColumns > 1)
    for (; column < head_dim; column += 16)
      value_columns<kRows, 1, kAhead, Value>(blocks, num_blocks, head_dim, weights, column, acc);
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
    int32_t n = rows;
    if (rows >= 2 * kRegisterRows) {
      n = kRegisterRows;
    } else if (rows > kRegisterRows) {
      n = (rows + 1) / 2;
      if (rows - n == 3 && n < kRegisterRows) ++n;  // three chains would wait for each other
    }
    with_rows(n, first, tile);
    first += n;
    rows -= n;
  }
}

}  // namespace farthing::FARTHING_ISA
