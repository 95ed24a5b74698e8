// The order in which a linear call visits its row blocks, columns and tokens: shared by the vector
// instruction sets, which bring the arithmetic as `Ops`.
//
// Few tokens: each row block is read once as one stream, unpacked in registers ("stream").
// Many tokens: a panel of a row block's columns is unpacked once into L1, then swept by tiles of
// tokens whose accumulators wait in memory between panels ("panel"). Both add in ascending order.
#pragma once

#include <immintrin.h>

#include "kernels/linear/layout.h"
#include "kernels/linear/linear.h"

namespace farthing::FARTHING_ISA {

inline constexpr int kMaxTile = 8;       // tokens of one tile
inline constexpr int kTokenChunk = 256;  // tokens whose accumulators are kept between panels

// Planes of one row block, from some column on.
struct Planes {
  const uint8_t* codes;
  const uint8_t* high;
  const uint8_t* sub;
  const uint8_t* scales;
};

// Activations of one tile of tokens, from the same column on.
struct Tokens {
  const float* values;
  const int8_t* codes;
  const float* scales;
  const int32_t* sums;
  size_t value_stride, code_stride, scale_stride, sum_stride;  // elements between tokens
};

struct Call {
  const MatrixView& w;
  RowBlockLayout layout;
  int32_t block_begin, block_end;
  const Activations& a;
  int32_t row_begin, row_end;
  const float* bias;
  const float* add;
  float* out;
  size_t out_stride;

  const uint8_t* block(int32_t b) const {
    return w.data + static_cast<size_t>(b) * w.row_block_bytes;
  }
};

inline Planes planes_at(const Call& c, int32_t b, int32_t col) {
  const SchemeTraits& traits = kTraits[static_cast<int>(c.w.scheme)];
  const uint8_t* block = c.block(b);
  if (traits.group == 0) return {block, nullptr, nullptr, nullptr};
  const size_t k = static_cast<size_t>(col);
  const size_t group = k / static_cast<size_t>(traits.group);
  const size_t high_bits = traits.code_bits == 8 ? 0 : static_cast<size_t>(traits.code_bits - 4);
  const size_t sub_bytes = traits.minimum ? kSubScaleBytesQ4K : kSubScaleBytesQ6K;
  return {block + k * kLanes / (traits.code_bits == 8 ? 1 : 2),
          block + c.layout.high + k * kLanes * high_bits / 8,
          block + c.layout.sub + group * (traits.sub_cols == 0 ? 0 : sub_bytes),
          block + c.layout.scales + group * 2 * kLanes * (traits.minimum ? 2 : 1)};
}

inline Tokens tokens_at(const Activations& a, int32_t t, int32_t col) {
  const size_t row = static_cast<size_t>(t), k = static_cast<size_t>(col);
  Tokens r{};
  if (a.values != nullptr) {
    r.value_stride = static_cast<size_t>(a.cols);
    r.values = a.values + row * r.value_stride + k;
  }
  if (a.codes != nullptr) {
    const size_t group = static_cast<size_t>(a.group);
    r.code_stride = a.code_stride;
    r.scale_stride = static_cast<size_t>(a.cols) / group;
    r.sum_stride = (static_cast<size_t>(a.cols) + kSumRun - 1) / kSumRun;
    r.codes = a.codes + row * r.code_stride + k;
    r.scales = a.scales + row * r.scale_stride + k / group;
    r.sums = a.sums + row * r.sum_stride + k / kSumRun;
  }
  return r;
}

// acc: (tokens, 16) finished sums of row block b.
inline void write_tile(const Call& c, int32_t b, int32_t first_token, int tokens, const float* acc) {
  const int32_t first_row = b * kLanes;
  const int rows = c.w.rows - first_row < kLanes ? c.w.rows - first_row : kLanes;
  for (int t = 0; t < tokens; ++t, acc += kLanes) {
    const size_t at = static_cast<size_t>(first_token + t) * c.out_stride +
                      static_cast<size_t>(first_row);
    const float* bias = c.bias == nullptr ? nullptr : c.bias + first_row;
    const float* add = c.add == nullptr ? nullptr : c.add + at;
    alignas(64) float y[kLanes];
    if (rows == kLanes) {
      for (int i = 0; i < kLanes; ++i) y[i] = acc[i];
      if (bias != nullptr)
        for (int i = 0; i < kLanes; ++i) y[i] = y[i] + bias[i];
      if (add != nullptr)
        for (int i = 0; i < kLanes; ++i) y[i] = y[i] + add[i];
      for (int i = 0; i < kLanes; ++i) c.out[at + static_cast<size_t>(i)] = y[i];
    } else {
      for (int i = 0; i < rows; ++i) {
        y[i] = acc[i];
        if (bias != nullptr) y[i] = y[i] + bias[i];
        if (add != nullptr) y[i] = y[i] + add[i];
        c.out[at + static_cast<size_t>(i)] = y[i];
      }
    }
  }
}

// Sizes of the tiles that cover `tokens`: as equal as possible, at most `most` each.
struct Tiling {
  int tiles, size, larger;  // the first `larger` tiles have size + 1
  int size_of(int tile) const { return tile < larger ? size + 1 : size; }
};
inline Tiling tiling(int tokens, int most) {
  const int tiles = (tokens + most - 1) / most;
  return {tiles, tokens / tiles, tokens % tiles};
}

template <class Ops, Scheme S>
void stream_blocks(const Call& c) {
  using Tile = void (*)(const Planes&, int32_t, const Tokens&, const uint8_t*, float*);
  static constexpr Tile kTiles[kMaxTile] = {
      Ops::template stream<S, 1>, Ops::template stream<S, 2>, Ops::template stream<S, 3>,
      Ops::template stream<S, 4>, Ops::template stream<S, 5>, Ops::template stream<S, 6>,
      Ops::template stream<S, 7>, Ops::template stream<S, 8>};
  const Tiling tiles = tiling(c.row_end - c.row_begin, kMaxTile);
  alignas(64) float acc[kMaxTile * kLanes];
  for (int32_t b = c.block_begin; b < c.block_end; ++b) {
    const Planes planes = planes_at(c, b, 0);
    int32_t t = c.row_begin;
    for (int i = 0; i < tiles.tiles; ++i) {
      const int n = tiles.size_of(i);
      kTiles[n - 1](planes, c.w.cols, tokens_at(c.a, t, 0), c.block(b + 1), acc);
      write_tile(c, b, t, n, acc);
      t += n;
    }
  }
}

// Fetches into L2 one share of a row block that will be needed soon.
inline void prefetch_share(const uint8_t* block, size_t bytes, size_t share, size_t shares) {
  const size_t lines = bytes / 64;
  const size_t end = lines * (share + 1) / shares;
  for (size_t i = lines * share / shares; i < end; ++i)
    _mm_prefetch(reinterpret_cast<const char*>(block + 64 * i), _MM_HINT_T1);
}

template <class Ops, Scheme S>
void panel_blocks(const Call& c) {
  using Panel = typename Ops::template Panel<S>;
  using Tile = void (*)(const Panel&, const Planes&, int32_t, const Tokens&, bool, float*);
  static constexpr Tile kTiles[kMaxTile] = {
      Ops::template sweep<S, 1>, Ops::template sweep<S, 2>, Ops::template sweep<S, 3>,
      Ops::template sweep<S, 4>, Ops::template sweep<S, 5>, Ops::template sweep<S, 6>,
      Ops::template sweep<S, 7>, Ops::template sweep<S, 8>};
  alignas(64) Panel panel;
  alignas(64) float acc[kTokenChunk * kLanes];
  const int32_t panel_cols = Ops::template panel_cols<S>();
  const size_t panels = static_cast<size_t>((c.w.cols + panel_cols - 1) / panel_cols);
  for (int32_t first = c.row_begin; first < c.row_end; first += kTokenChunk) {
    const int32_t count = c.row_end - first < kTokenChunk ? c.row_end - first : kTokenChunk;
    const Tiling tiles = tiling(count, Ops::template sweep_tile<S>());
    const size_t shares = panels * static_cast<size_t>(tiles.tiles);
    for (int32_t b = c.block_begin; b < c.block_end; ++b) {
      size_t share = 0;
      for (int32_t col = 0; col < c.w.cols; col += panel_cols) {
        const int32_t cols = c.w.cols - col < panel_cols ? c.w.cols - col : panel_cols;
        const Planes planes = planes_at(c, b, col);
        Ops::template unpack<S>(planes, cols, panel);
        int32_t t = 0;
        for (int i = 0; i < tiles.tiles; ++i) {
          const int n = tiles.size_of(i);
          float* sums = acc + t * kLanes;
          prefetch_share(c.block(b + 1), c.layout.bytes, share++, shares);
          kTiles[n - 1](panel, planes, cols, tokens_at(c.a, first + t, col), col == 0, sums);
          if (col + cols == c.w.cols) write_tile(c, b, first + t, n, sums);
          t += n;
        }
      }
    }
  }
}

template <class Ops, Scheme S>
void run(const Call& c) {
  if constexpr (kTraits[static_cast<int>(S)].group != 0) {
    if (c.row_end - c.row_begin > Ops::template stream_tokens<S>()) return panel_blocks<Ops, S>(c);
  }
  stream_blocks<Ops, S>(c);
}

template <class Ops>
void linear(const MatrixView& w, int32_t block_begin, int32_t block_end, const Activations& a,
            int32_t row_begin, int32_t row_end, const float* bias, const float* add, float* out,
            size_t out_stride) {
  if (row_end <= row_begin) return;
  const Call c{w,         row_block_layout(w.scheme, w.cols), block_begin, block_end, a, row_begin,
               row_end,   bias,                               add,         out,       out_stride};
  switch (w.scheme) {
    case Scheme::f32: return run<Ops, Scheme::f32>(c);
    case Scheme::f16: return run<Ops, Scheme::f16>(c);
    case Scheme::bf16: return run<Ops, Scheme::bf16>(c);
    case Scheme::q4_0: return run<Ops, Scheme::q4_0>(c);
    case Scheme::q4_1: return run<Ops, Scheme::q4_1>(c);
    case Scheme::q5_0: return run<Ops, Scheme::q5_0>(c);
    case Scheme::q5_1: return run<Ops, Scheme::q5_1>(c);
    case Scheme::q8_0: return run<Ops, Scheme::q8_0>(c);
    case Scheme::q4_k: return run<Ops, Scheme::q4_k>(c);
    case Scheme::q5_k: return run<Ops, Scheme::q5_k>(c);
    case Scheme::q6_k: return run<Ops, Scheme::q6_k>(c);
  }
}

}  // namespace farthing::FARTHING_ISA
