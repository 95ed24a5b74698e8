#include "program/linear_tiles.h"

#include <algorithm>

namespace farthing {
namespace {

constexpr size_t kActivationBytes = size_t{384} << 10;
constexpr int32_t kTilesPerThread = 8;
constexpr int32_t kMinRowsPerTile = 64;
// The kernel rearranges a tile's activations before it starts: some 4 cycles a group, against 10 to
// 13 for each row block that follows. A single row is nothing beside the weights it waits for.
constexpr int32_t kMinBlocksPerTile = 7;
constexpr int32_t kFewRows = 4;

int32_t divide_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

}  // namespace

int32_t rows_per_tile(int32_t rows, int32_t cols, int32_t most) {
  const int32_t cached = static_cast<int32_t>(kActivationBytes / static_cast<size_t>(cols));
  const int32_t fit = std::clamp(cached, kMinRowsPerTile, most);
  const int32_t equal = divide_up(rows, divide_up(rows, fit));
  return divide_up(equal, 8) * 8;
}

std::vector<LinearTile> cut_linear(int32_t blocks, int32_t rows, int32_t rows_per_tile,
                                   int threads, int32_t unit) {
  std::vector<LinearTile> tiles;
  if (rows == 0) return tiles;
  const int32_t row_tiles = divide_up(rows, rows_per_tile);
  int32_t tiles_per_thread = kTilesPerThread;
  while (rows >= kFewRows && tiles_per_thread > 1 &&
         blocks < kMinBlocksPerTile * tiles_per_thread * threads / row_tiles)
    tiles_per_thread /= 2;
  const int32_t block_tiles = std::max(1, tiles_per_thread * threads / row_tiles);
  const int32_t blocks_per_tile = divide_up(divide_up(blocks, block_tiles), unit) * unit;
  for (int32_t r = 0; r < rows; r += rows_per_tile)
    for (int32_t b = 0; b < blocks; b += blocks_per_tile)
      tiles.push_back({{b, std::min(b + blocks_per_tile, blocks)},
                       {r, std::min(r + rows_per_tile, rows)}});
  return tiles;
}

int32_t blocks_together(size_t bytes, int32_t rows, int32_t width, int32_t unit) {
  const size_t block = sizeof(float) * static_cast<size_t>(rows) * static_cast<size_t>(width);
  return std::max(1, static_cast<int32_t>(bytes / block) / unit) * unit;
}

const uint8_t* tile_weights(const LinearSegment& segment, const LinearTile& tile) {
  const MatrixView view = segment.matrix->view();
  return view.data + view.row_block_bytes * static_cast<size_t>(tile.blocks.begin);
}

Activations activations(const LinearSegment& segment, const FloatBuffer* x, int32_t first_row) {
  Activations a{};
  a.cols = segment.matrix->cols();
  if (Int8Buffer* rounded = segment.rounded) {
    a.codes = rounded->codes(first_row);
    a.scales = rounded->scales(first_row);
    a.sums = rounded->sums(first_row);
    a.group = rounded->group;
    a.code_stride = rounded->code_stride();
  } else {
    a.values = x->row(first_row);
  }
  return a;
}

void multiply(const LinearKernels& kernels, const LinearSegment& segment, const FloatBuffer* x,
              const LinearTile& tile, const float* add, float* out, size_t stride) {
  MatrixView view = segment.matrix->view();
  const int32_t first = tile.blocks.begin * kLanes;
  view.data = tile_weights(segment, tile);
  view.rows -= first;
  kernels.linear(view, 0, tile.blocks.end - tile.blocks.begin,
                 activations(segment, x, tile.rows.begin), 0, tile.rows.end - tile.rows.begin,
                 segment.bias.empty() ? nullptr : segment.bias.data() + first, add, out, stride);
}

}  // namespace farthing
