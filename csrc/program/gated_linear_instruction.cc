#include "program/gated_linear_instruction.h"

#include <algorithm>
#include <utility>

namespace farthing {
namespace {

// Gates and ups that wait for each other stay in a core's caches: in the first-level one where
// their groups allow, in the second-level one at worst.
constexpr size_t kWantedBytes = size_t{64} << 10;
constexpr size_t kMostBytes = size_t{256} << 10;
constexpr int32_t kMostRows = 512;
constexpr int32_t kBlockUnit = 2;     // the kernels sweep two row blocks at once
constexpr int32_t kMostBlocks = 128;
// Rows that do not lie a power of two apart do not share their places in a cache.
constexpr int32_t kRowPadding = kLanes;
constexpr int32_t kPairWidth = 2 * kLanes;  // a row block of gates, one of ups

}  // namespace

GatedLinearInstruction::GatedLinearInstruction(const LinearKernels& linear,
                                               const ElementwiseKernels& elementwise,
                                               const FloatBuffer* x, LinearSegment gate,
                                               LinearSegment up, Activation activation, RowSink out)
    : linear_(linear),
      elementwise_(elementwise),
      x_(x),
      gate_(std::move(gate)),
      up_(std::move(up)),
      activation_(activation),
      out_(std::move(out)),
      unit_(kBlockUnit) {
  for (const Int8Buffer* buffer : out_.rounded) unit_ = std::max(unit_, buffer->group / kLanes);
  const size_t row_bytes = sizeof(float) * kPairWidth * static_cast<size_t>(unit_);
  const int32_t fit = static_cast<int32_t>(kMostBytes / row_bytes) / 8 * 8;
  most_rows_ = std::clamp(fit, 64, kMostRows);
}

size_t GatedLinearInstruction::scratch_bytes() const {
  const size_t least = sizeof(float) * kPairWidth * static_cast<size_t>(most_rows_) *
                       static_cast<size_t>(unit_);
  return std::max(kWantedBytes, least) +
         sizeof(float) * kRowPadding * static_cast<size_t>(most_rows_);
}

int32_t GatedLinearInstruction::plan(const Step& step, int threads) {
  const int32_t rows = step.rows(out_.rows());
  if (rows != planned_rows_ || threads != planned_threads_) {
    planned_rows_ = rows;
    planned_threads_ = threads;
    const Matrix& matrix = *gate_.matrix;
    const int32_t together = rows == 0 ? 1 : rows_per_tile(rows, matrix.cols(), most_rows_);
    tiles_ = cut_linear(matrix.row_blocks(), rows, together, threads, unit_);
  }
  return static_cast<int32_t>(tiles_.size());
}

void GatedLinearInstruction::run(int32_t index, const Step&, uint8_t* scratch) const {
  const LinearTile& tile = tiles_[static_cast<size_t>(index)];
  float* pairs = reinterpret_cast<float*>(scratch);
  const int32_t rows = tile.rows.end - tile.rows.begin;
  const int32_t together = std::max(
      unit_, std::min(kMostBlocks, blocks_together(kWantedBytes, rows, kPairWidth, unit_)));
  const size_t stride = static_cast<size_t>(together * kPairWidth + kRowPadding);
  for (int32_t b = tile.blocks.begin; b < tile.blocks.end; b += together) {
    const LinearTile part{{b, std::min(b + together, tile.blocks.end)}, tile.rows};
    const int32_t first = b * kLanes;
    const int32_t width = std::min(part.blocks.end * kLanes, out_.width()) - first;
    multiply(linear_, gate_, x_, part, nullptr, pairs, stride);
    multiply(linear_, up_, x_, part, nullptr, pairs + width, stride);
    for (int32_t i = 0; i < rows; ++i) {
      float* row = pairs + static_cast<size_t>(i) * stride;
      elementwise_.gated_row(row, activation_, width, row);
      out_.put(tile.rows.begin + i, first, width, row);
    }
  }
}

}  // namespace farthing
