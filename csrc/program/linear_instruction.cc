#include "program/linear_instruction.h"

#include <algorithm>
#include <utility>

namespace farthing {
namespace {

// Activation codes of one tile should stay in a core's second-level cache while the row blocks
// pass by.
constexpr size_t kActivationBytes = size_t{384} << 10;
constexpr int32_t kTilesPerThread = 8;
constexpr int32_t kMinRowsPerTile = 64;

int32_t row_blocks(const Matrix& m) { return (m.view().rows + kLanes - 1) / kLanes; }

}  // namespace

LinearInstruction::LinearInstruction(const LinearKernels& kernels, const FloatBuffer* x,
                                     RowKind rows, std::vector<LinearSegment> segments,
                                     const FloatBuffer* add, FloatBuffer* out)
    : kernels_(kernels),
      x_(x),
      rows_(rows),
      segments_(std::move(segments)),
      add_(add),
      out_(out) {}

int32_t LinearInstruction::plan(const Step& step, int threads) {
  const int32_t rows = step.rows(rows_);
  if (rows == planned_rows_ && threads == planned_threads_)
    return static_cast<int32_t>(tiles_.size());
  planned_rows_ = rows;
  planned_threads_ = threads;
  tiles_.clear();
  if (rows == 0) return 0;

  int32_t total_blocks = 0;
  for (const LinearSegment& s : segments_) total_blocks += row_blocks(*s.matrix);
  const size_t cols = static_cast<size_t>(segments_.front().matrix->view().cols);
  const int32_t fit = std::max(kMinRowsPerTile, static_cast<int32_t>(kActivationBytes / cols));
  const int32_t row_tiles = (rows + fit - 1) / fit;
  // Equal tiles, of whole kernel tiles of 8 rows.
  const int32_t rows_per_tile = ((rows + row_tiles - 1) / row_tiles + 7) / 8 * 8;
  const int32_t block_tiles = std::max(1, kTilesPerThread * threads / row_tiles);
  const int32_t blocks_per_tile = std::max(1, (total_blocks + block_tiles - 1) / block_tiles);

  for (int32_t r = 0; r < rows; r += rows_per_tile) {
    const Range range{r, std::min(r + rows_per_tile, rows)};
    int32_t first_output = 0;
    for (int32_t i = 0; i < static_cast<int32_t>(segments_.size()); ++i) {
      const Matrix& matrix = *segments_[static_cast<size_t>(i)].matrix;
      const int32_t blocks = row_blocks(matrix);
      for (int32_t b = 0; b < blocks; b += blocks_per_tile)
        tiles_.push_back({i, first_output, {b, std::min(b + blocks_per_tile, blocks)}, range});
      first_output += matrix.view().rows;
    }
  }
  return static_cast<int32_t>(tiles_.size());
}

size_t LinearInstruction::weight_bytes() const {
  size_t bytes = 0;
  for (const LinearSegment& s : segments_) bytes += s.matrix->nbytes();
  return bytes;
}

void LinearInstruction::run(int32_t index, const Step&, uint8_t*) const {
  const Tile& tile = tiles_[static_cast<size_t>(index)];
  const LinearSegment& segment = segments_[static_cast<size_t>(tile.segment)];
  const MatrixView& view = segment.matrix->view();
  Activations a{};
  a.cols = view.cols;
  if (Int8Buffer* rounded = segment.rounded) {
    a.codes = rounded->codes(0);
    a.scales = rounded->scales(0);
    a.sums = rounded->sums(0);
    a.group = rounded->group;
    a.code_stride = rounded->code_stride();
  } else {
    a.values = x_->data;
  }
  kernels_.linear(view, tile.blocks.begin, tile.blocks.end, a, tile.rows.begin, tile.rows.end,
                  segment.bias.empty() ? nullptr : segment.bias.data(),
                  add_ ? add_->data + tile.first_output : nullptr, out_->data + tile.first_output,
                  static_cast<size_t>(out_->width));
}

}  // namespace farthing
