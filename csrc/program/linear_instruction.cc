#include "program/linear_instruction.h"

#include <algorithm>
#include <utility>

namespace farthing {

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

  int32_t blocks = 0;
  for (const LinearSegment& s : segments_) blocks += s.matrix->row_blocks();
  const int32_t row_count = rows_per_tile(rows, segments_.front().matrix->cols(), INT32_MAX - 7);
  // Tiles of all segments together, cut again where one segment ends and the next begins.
  for (const LinearTile& whole : cut_linear(blocks, rows, row_count, threads, 1)) {
    int32_t first_block = 0, first_output = 0;
    for (size_t i = 0; i < segments_.size(); ++i) {
      const int32_t end = first_block + segments_[i].matrix->row_blocks();
      const Range part{std::max(whole.blocks.begin, first_block), std::min(whole.blocks.end, end)};
      if (part.begin < part.end)
        tiles_.push_back({static_cast<int32_t>(i), first_output,
                          {{part.begin - first_block, part.end - first_block}, whole.rows}});
      first_block = end;
      first_output += segments_[i].matrix->rows();
    }
  }
  return static_cast<int32_t>(tiles_.size());
}

size_t LinearInstruction::weight_bytes() const {
  size_t bytes = 0;
  for (const LinearSegment& s : segments_) bytes += s.matrix->nbytes();
  return bytes;
}

const uint8_t* LinearInstruction::tile_weights(int32_t index) const {
  const Tile& tile = tiles_[static_cast<size_t>(index)];
  return farthing::tile_weights(segments_[static_cast<size_t>(tile.segment)], tile.part);
}

void LinearInstruction::run(int32_t index, const Step&, uint8_t*) const {
  const Tile& tile = tiles_[static_cast<size_t>(index)];
  const size_t stride = static_cast<size_t>(out_->width);
  const size_t at = stride * static_cast<size_t>(tile.part.rows.begin) +
                    static_cast<size_t>(tile.first_output + kLanes * tile.part.blocks.begin);
  multiply(kernels_, segments_[static_cast<size_t>(tile.segment)], x_, tile.part,
           add_ ? add_->data + at : nullptr, out_->data + at, stride);
}

}  // namespace farthing
