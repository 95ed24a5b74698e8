// The order in which a linear call visits its row blocks, columns and tokens: shared by the vector
// instruction sets, which bring the arithmetic as `Ops`.
//
// The activations are rearranged first (records.h). Then each row block is read as one stream by
// one tile of tokens after the other, unpacked in registers ("stream"). Where that costs more than
// it hides, many tokens are served from panels: columns of two row blocks are unpacked once into
// L1, then swept by the tiles, whose accumulators wait in memory between panels ("panel"). Both add
// in ascending order.
#pragma once

#include <immintrin.h>

#include <utility>

#include "kernels/linear/records.h"

namespace farthing::FARTHING_ISA::sweeps {

inline constexpr int kSweepCols = 512;  // of a panel
static_assert(kSweepCols % (2 * kSuperCols) == 0, "whole chunks of every scheme");
inline constexpr int kSweepBlocks = 2;  // row blocks of a sweep, whose outputs lie side by side
inline constexpr size_t kFirstBytes = 2048;
inline constexpr int kTokenChunk = 256;  // tokens whose records and accumulators are kept

// A row block's weights from a column on: of a chunk, or within the one unit of a row.
struct Weights {
  const uint8_t* packed;
  const uint8_t* block;    // where the row block starts: the scales, if there is one a row
  const int8_t* codebook;
};

// Where step i keeps its unit or spans, and activation group g its scales.
template <Scheme S>
[[gnu::always_inline]] inline const uint8_t* unit_at(const Weights& w, size_t i) {
  constexpr SchemeTraits t = traits_of(S);
  if constexpr (kIsRow<S>) return w.packed + kLineBytes + i * kStepSpans<S> * t.span_bytes;
  return w.packed + i / t.chunk_units * t.chunk_bytes + kLineBytes +
         i % t.chunk_units * t.unit_bytes;
}
template <Scheme S>
[[gnu::always_inline]] inline const uint8_t* scales_at(const Weights& w, size_t g) {
  constexpr SchemeTraits t = traits_of(S);
  if constexpr (kIsRow<S>) return w.block;
  return w.packed + g / t.chunk_groups * t.chunk_bytes + g % t.chunk_groups * 2 * kLanes;
}

// Floating-point activations of one tile of tokens.
struct Tokens {
  const float* values;
  size_t stride;  // between tokens
};

// What a stream of weights asks for ahead. While little is computed on each line the hardware
// follows the stream better by itself; each instruction set says up to how many tokens that holds.
enum class Prefetch { none, near, both };
inline constexpr int kNearAhead = 1024;  // bytes, into L1
inline constexpr int kFarAhead = 6144;   // bytes, into L2: L1 has too few miss buffers for memory

// Span j of a step asks for its share of the stream, crossing into the next row block.
template <Scheme S, Prefetch kPrefetch>
[[gnu::always_inline]] inline void prefetch_ahead(const uint8_t* unit, size_t j) {
  constexpr SchemeTraits t = traits_of(S);
  constexpr int spans = kStepSpans<S> * t.chunk_units;
  constexpr int share = kIsRow<S> ? t.span_bytes : (t.chunk_bytes + spans - 1) / spans;
  const char* p = reinterpret_cast<const char*>(unit) + share * j;
#pragma GCC unroll 16
  for (int i = 0; i < share; i += kLineBytes) {
    if constexpr (kPrefetch != Prefetch::none) _mm_prefetch(p + kNearAhead + i, _MM_HINT_T0);
    if constexpr (kPrefetch == Prefetch::both) _mm_prefetch(p + kFarAhead + i, _MM_HINT_T1);
  }
}

struct Call {
  const MatrixView& w;
  int32_t block_begin, block_end;
  const Activations& a;
  int32_t row_begin, row_end;
  const float* bias;
  const float* add;
  float* out;
  size_t out_stride;

  // Columns the kernel goes through.
  int32_t cols() const {
    const int32_t group = scheme_traits(w.scheme).activation_group;
    return group == 0 ? w.cols : padded_cols(w.cols, group);
  }

  const uint8_t* block(int32_t b) const {
    return w.data + static_cast<size_t>(b) * w.row_block_bytes;
  }
  // Row block b from a column on, which must begin a chunk, or a step of a row.
  Weights weights(int32_t b, int32_t col) const {
    const SchemeTraits& t = scheme_traits(w.scheme);
    const uint8_t* start = block(b);
    if (col == 0) return {start, start, w.codebook};
    return {start + span_offset(t, col) - t.sub_bytes - kLineBytes, start, w.codebook};
  }
};

// acc: (tokens, 16) finished sums of row block b.
template <class Ops>
void write_tile(const Call& c, int32_t b, int32_t first_token, int tokens, const float* acc) {
  const int32_t first_row = b * kLanes;
  const int rows = c.w.rows - first_row < kLanes ? c.w.rows - first_row : kLanes;
  const size_t at = static_cast<size_t>(first_token) * c.out_stride +
                    static_cast<size_t>(first_row);
  const float* bias = c.bias == nullptr ? nullptr : c.bias + first_row;
  const float* add = c.add == nullptr ? nullptr : c.add + at;
  float* out = c.out + at;
  for (int t = 0; t < tokens; ++t, acc += kLanes, out += c.out_stride) {
    if (rows == kLanes)
      Ops::write_row(acc, bias, add, out);
    else
      for (int i = 0; i < rows; ++i) {
        float y = acc[i];
        if (bias != nullptr) y = y + bias[i];
        if (add != nullptr) y = y + add[i];
        out[i] = y;
      }
    if (add != nullptr) add += c.out_stride;
  }
}

// Functions for tiles of 1 to kTile tokens, by their number less one.
template <class Tile, int kTile>
struct TileTable {
  Tile tiles[kTile];
  Tile operator()(int tokens) const { return tiles[tokens - 1]; }
};

template <Scheme S>
inline size_t steps_of(const Call& c) {
  return static_cast<size_t>(c.cols() / kStepCols<S>);
}

template <class Ops, Scheme S>
void float_blocks(const Call& c) {
  using Tile = void (*)(const uint8_t*, size_t, const Tokens&, float*);
  static constexpr auto kTiles = []<int... kLess>(std::integer_sequence<int, kLess...>) {
    return TileTable<Tile, Ops::kTile>{{Ops::template floats<S, kLess + 1>...}};
  }(std::make_integer_sequence<int, Ops::kTile>{});
  const Tiling tiles = tiling(c.row_end - c.row_begin, Ops::kTile);
  const size_t cols = static_cast<size_t>(c.w.cols);
  alignas(64) float acc[Ops::kTile * kLanes];
  for (int32_t b = c.block_begin; b < c.block_end; ++b) {
    int32_t t = c.row_begin;
    for (int i = 0; i < tiles.tiles; ++i) {
      const int n = tiles.size_of(i);
      kTiles(n)(c.block(b), cols, {c.a.values + static_cast<size_t>(t) * cols, cols}, acc);
      write_tile<Ops>(c, b, t, n, acc);
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

// Outputs are rows of a wide matrix: each token's line is a miss of its own.
inline void prefetch_output(const Call& c, int32_t b, int32_t first_token, int tokens,
                            int blocks) {
  float* out = c.out + static_cast<size_t>(first_token) * c.out_stride + b * kLanes;
  for (int t = 0; t < tokens; ++t, out += c.out_stride)
    for (int r = 0; r < blocks; ++r) __builtin_prefetch(out + r * kLanes, 1);
}

template <class Ops, Scheme S>
void stream_blocks(const Call& c, int32_t first, const Tiling& tiles, const uint8_t* records) {
  using Tile = void (*)(const Weights&, size_t, const uint8_t*, float*);
  static constexpr auto kTiles = []<int... kLess>(std::integer_sequence<int, kLess...>) {
    return TileTable<Tile, Ops::kTile>{{Ops::template stream<S, kLess + 1>...}};
  }(std::make_integer_sequence<int, Ops::kTile>{});
  const size_t steps = steps_of<S>(c);
  alignas(64) float acc[Ops::kTile * kLanes];
  for (int32_t b = c.block_begin; b < c.block_end; ++b) {
    const Weights weights = c.weights(b, 0);
    const uint8_t* at = records;
    int32_t t = first;
    for (int i = 0; i < tiles.tiles; ++i) {
      const int n = tiles.size_of(i);
      prefetch_output(c, b, t, n, 1);
      kTiles(n)(weights, steps, at, acc);
      write_tile<Ops>(c, b, t, n, acc);
      t += n;
      at += steps * record_bytes<Ops, S>(n);
    }
  }
}

template <class Ops, Scheme S>
void panel_blocks(const Call& c, int32_t first, const Tiling& tiles, const uint8_t* records) {
  using Panel = typename Ops::template Panel<S>;
  using Tile = void (*)(const Panel*, int, size_t, const uint8_t*, bool, float*);
  static constexpr auto kTiles = []<int... kLess>(std::integer_sequence<int, kLess...>) {
    return TileTable<Tile, Ops::kTile>{{Ops::template sweep<S, kLess + 1>...}};
  }(std::make_integer_sequence<int, Ops::kTile>{});
  Panel panels[kSweepBlocks];
  alignas(64) float acc[kTokenChunk * kSweepBlocks * kLanes];
  constexpr size_t sweep_steps = kSweepCols / kStepCols<S>;
  const size_t all = steps_of<S>(c);
  const size_t sweeps = (all + sweep_steps - 1) / sweep_steps;
  const size_t shares = sweeps * static_cast<size_t>(tiles.tiles);
  for (int32_t b = c.block_begin; b < c.block_end; b += kSweepBlocks) {
    const int blocks = c.block_end - b < kSweepBlocks ? c.block_end - b : kSweepBlocks;
    size_t share = 0;
    for (size_t step = 0; step < all; step += sweep_steps) {
      const size_t steps = all - step < sweep_steps ? all - step : sweep_steps;
      const bool last = step + steps == all;
      for (int r = 0; r < blocks; ++r)
        Ops::template unpack<S>(c.weights(b + r, static_cast<int32_t>(step) * kStepCols<S>),
                                steps, panels[r]);
      const uint8_t* at = records;
      int32_t t = 0;
      for (int i = 0; i < tiles.tiles; ++i) {
        const int n = tiles.size_of(i);
        float* sums = acc + t * blocks * kLanes;
        prefetch_share(c.block(b + blocks), c.w.row_block_bytes * static_cast<size_t>(blocks),
                       share++, shares);
        if (last) prefetch_output(c, b, first + t, n, blocks);
        kTiles(n)(panels, blocks, steps, at + step * record_bytes<Ops, S>(n), step == 0, sums);
        if (last)
          for (int r = 0; r < blocks; ++r)
            write_tile<Ops>(c, b + r, first + t, n, sums + r * n * kLanes);
        t += n;
        at += all * record_bytes<Ops, S>(n);
      }
    }
  }
}

template <class Ops, Scheme S>
void run(const Call& c) {
  if constexpr (kTraits[static_cast<int>(S)].group == 0) {
    float_blocks<Ops, S>(c);
  } else {
    for (int32_t first = c.row_begin; first < c.row_end; first += kTokenChunk) {
      const int32_t count = c.row_end - first < kTokenChunk ? c.row_end - first : kTokenChunk;
      const Tiling tiles = tiling(count, Ops::kTile);
      // The first weights are under way while the activations are rearranged.
      prefetch_share(c.block(c.block_begin), kFirstBytes, 0, 1);
      const uint8_t* records = prepare<Ops, S>(c.a, first, tiles);
      if (count > Ops::template kStreamTokens<S>)
        panel_blocks<Ops, S>(c, first, tiles, records);
      else
        stream_blocks<Ops, S>(c, first, tiles, records);
    }
  }
}

// Runs the call if it is for one of kSchemes, and says whether it was.
template <class Ops, Scheme... kSchemes>
bool run_one_of(const Call& c) {
  return ((c.w.scheme == kSchemes && (run<Ops, kSchemes>(c), true)) || ...);
}

// Each in a file of its own, so that they compile side by side.
bool linear_codebook(const Call& c);
bool linear_five_bits(const Call& c);
bool linear_six_bits(const Call& c);
bool linear_eight_bits(const Call& c);
bool linear_two_level(const Call& c);

}  // namespace farthing::FARTHING_ISA::sweeps
