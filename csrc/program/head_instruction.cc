#include "program/head_instruction.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace farthing {
namespace {

// Logits that wait for the next stage stay in a core's caches.
constexpr size_t kLogitBytes = size_t{64} << 10;
constexpr int32_t kMostRows = 256;
constexpr int32_t kBlockUnit = 2;      // the kernels sweep two row blocks at once
constexpr int32_t kMostBlocks = 256;
// So few rows are written where the caller wants them; more would miss a page each.
constexpr int32_t kDirectRows = 8;

// Rows that do not lie a power of two apart do not share their places in a cache.
constexpr int32_t kRowPadding = kLanes;

}  // namespace

HeadInstruction::HeadInstruction(const LinearKernels& linear, const ElementwiseKernels& elementwise,
                                 const SamplingKernels& sampling, const FloatBuffer* start,
                                 std::vector<HeadStage> stages, FloatBuffer* out)
    : linear_(linear),
      elementwise_(elementwise),
      sampling_(sampling),
      start_(start),
      stages_(std::move(stages)),
      out_(out) {}

size_t HeadInstruction::scratch_bytes() const {
  constexpr size_t least = size_t{kMostRows} * kBlockUnit * kLanes * sizeof(float);
  return std::max(kLogitBytes, least) + size_t{kMostRows} * kRowPadding * sizeof(float);
}

size_t HeadInstruction::weight_bytes() const {
  size_t bytes = 0;
  for (const HeadStage& s : stages_)
    if (s.kind == HeadStage::Kind::linear) bytes += s.segment.matrix->nbytes();
  return bytes;
}

const uint8_t* HeadInstruction::tile_weights(int32_t tile) const {
  for (const HeadStage& s : stages_)
    if (s.kind == HeadStage::Kind::linear)
      return farthing::tile_weights(s.segment, tiles_[static_cast<size_t>(tile)]);
  return nullptr;
}

int32_t HeadInstruction::plan(const Step& step, int threads) {
  const int32_t rows = step.rows(RowKind::logits);
  int32_t cols = 1;
  for (const HeadStage& s : stages_)
    if (s.kind == HeadStage::Kind::linear) cols = std::max(cols, s.segment.matrix->cols());
  tile_rows_ = rows == 0 ? 0 : rows_per_tile(rows, cols, kMostRows);
  const int32_t blocks = (vocab() + kLanes - 1) / kLanes;
  tiles_ = cut_linear(blocks, rows, tile_rows_, threads, kBlockUnit);
  bests_.assign(tiles_.size() * static_cast<size_t>(tile_rows_), RowBest{});
  return static_cast<int32_t>(tiles_.size());
}

void HeadInstruction::compute(const LinearTile& part, float* out, size_t stride) const {
  const int32_t first = part.blocks.begin * kLanes;
  const int32_t width = std::min(part.blocks.end * kLanes, vocab()) - first;
  const int32_t rows = part.rows.end - part.rows.begin;
  const auto each_row = [&](auto body) {
    for (int32_t i = 0; i < rows; ++i) body(i, out + static_cast<size_t>(i) * stride);
  };
  bool begun = false;
  if (start_) {
    each_row([&](int32_t i, float* row) {
      std::memcpy(row, start_->row(part.rows.begin + i) + first,
                  sizeof(float) * static_cast<size_t>(width));
    });
    begun = true;
  }
  for (const HeadStage& s : stages_) switch (s.kind) {
      case HeadStage::Kind::linear:
        multiply(linear_, s.segment, s.x, part, begun ? out : nullptr, out, stride);
        begun = true;
        break;
      case HeadStage::Kind::scale:
        each_row([&](int32_t, float* row) { elementwise_.scale_row(row, s.number, width, row); });
        break;
      case HeadStage::Kind::softcap:
        each_row([&](int32_t, float* row) { elementwise_.softcap_row(row, s.number, width, row); });
        break;
    }
}

void HeadInstruction::run(int32_t index, const Step& step, uint8_t* scratch) const {
  const LinearTile& tile = tiles_[static_cast<size_t>(index)];
  RowBest* bests = bests_.data() + static_cast<size_t>(index) * static_cast<size_t>(tile_rows_);
  float* logits = reinterpret_cast<float*>(scratch);
  const int32_t rows = tile.rows.end - tile.rows.begin;
  if (rows <= kDirectRows && tile.rows.end <= step.num_logit_rows) {
    compute(tile, out_->row(tile.rows.begin) + tile.blocks.begin * kLanes,
            static_cast<size_t>(vocab()));
    return;
  }
  const int32_t together =
      std::min(kMostBlocks, blocks_together(kLogitBytes, rows, kLanes, kBlockUnit));
  const size_t stride = static_cast<size_t>(together * kLanes + kRowPadding);
  for (int32_t b = tile.blocks.begin; b < tile.blocks.end; b += together) {
    const LinearTile part{{b, std::min(b + together, tile.blocks.end)}, tile.rows};
    compute(part, logits, stride);
    const int32_t first = b * kLanes;
    const int32_t width = std::min(part.blocks.end * kLanes, vocab()) - first;
    for (int32_t i = 0; i < rows; ++i) {
      const int32_t row = tile.rows.begin + i;
      const float* x = logits + static_cast<size_t>(i) * stride;
      if (row < step.num_logit_rows)
        std::memcpy(out_->row(row) + first, x, sizeof(float) * static_cast<size_t>(width));
      else
        sampling_.see_columns(x, width, first, bests[i]);
    }
  }
}

int32_t HeadInstruction::token(int32_t row) const {
  RowBest best;
  for (size_t t = 0; t < tiles_.size(); ++t) {
    const Range& rows = tiles_[t].rows;
    if (row >= rows.begin && row < rows.end)
      join(best, bests_[t * static_cast<size_t>(tile_rows_) +
                        static_cast<size_t>(row - rows.begin)]);
  }
  return greedy_token(best);
}

void PickInstruction::run(int32_t, const Step& step, uint8_t*) const {
  for (int32_t i = 0; i < step.num_argmax_rows; ++i)
    step.argmax_tokens[i] = head_->token(step.num_logit_rows + i);
}

}  // namespace farthing
