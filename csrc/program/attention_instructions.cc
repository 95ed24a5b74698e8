#include "program/attention_instructions.h"

#include <algorithm>

namespace farthing {

void RopeTableInstruction::run_row(int32_t row, const Step& step, float*) const {
  kernels_.rope_table(step.positions + row, 1, table_->inverse_frequencies.data(),
                      table_->half_dim(), table_->magnitude, table_->cos->row(row),
                      table_->sin->row(row));
}

int32_t StoreKvInstruction::plan(const Step& step, int threads) {
  sequence_of_row_.resize(static_cast<size_t>(step.num_tokens));
  for (int32_t s = 0; s < step.num_sequences; ++s)
    for (int32_t row = step.row_offsets[s]; row < step.row_offsets[s + 1]; ++row)
      sequence_of_row_[static_cast<size_t>(row)] = s;
  tiling_ = Tiling::balanced(step.num_tokens, threads);
  return tiling_.tiles();
}

void StoreKvInstruction::normalize(const HeadNorm& norm, float* heads, int32_t num_heads) const {
  const int32_t width = static_cast<int32_t>(norm.weight.size());
  if (width == 0) return;
  for (int32_t i = 0; i < num_heads * shape_.head_dim; i += width)
    elementwise_.rms_norm_row(heads + i, norm.weight.data(), norm.eps, width, heads + i);
}

void StoreKvInstruction::run(int32_t tile, const Step& step, uint8_t*) const {
  const Range range = tiling_.at(tile);
  const AttentionShape& s = shape_;
  for (int32_t row = range.begin; row < range.end; ++row) {
    float* q = qkv_->row(row);
    float* k = q + s.num_heads * s.head_dim;
    float* v = k + s.num_kv_heads * s.head_dim;
    normalize(q_norm_, q, s.num_heads);
    normalize(k_norm_, k, s.num_kv_heads);
    // Key heads follow the query heads, so one call rotates both.
    if (rope_)
      kernels_.rope_row(q, s.num_heads + s.num_kv_heads, s.head_dim, rope_->cos->row(row),
                        rope_->sin->row(row), rope_->half_dim());
    const int32_t position = step.positions[row];
    const int32_t* table = step.block_tables + static_cast<size_t>(step.table_stride) *
                                                   sequence_of_row_[static_cast<size_t>(row)];
    kernels_.store_kv(step.kv_layout, step.kv, layer_, table[position / kBlockTokens],
                      position % kBlockTokens, k, v);
  }
}

// Cuts a tile into its spans; or, where the memory for parts ends, into fewer, of which the first
// has several. Leaves it whole where that would gain nothing.
void AttendInstruction::share(const Work& whole, size_t& used) {
  const size_t floats = attention_part_floats(shape_, whole.tile.num_rows);
  const size_t stride = (floats + kLanes - 1) / kLanes * kLanes;
  const int32_t room = static_cast<int32_t>(
      std::min((AttentionParts::kFloats - used) / stride, size_t{INT32_MAX}));
  const int32_t num_parts = std::min(whole.spans.count(), room);
  if (num_parts < 2) {
    work_.push_back(whole);
    return;
  }
  const int32_t shared = static_cast<int32_t>(shared_.size());
  shared_.push_back({used, stride, num_parts});
  used += stride * static_cast<size_t>(num_parts);
  const int32_t oldest = first_visible(whole.tile.position, shape_.window);
  const int32_t end = whole.tile.position + whole.tile.num_rows;
  for (int32_t part = 0; part < num_parts; ++part) {
    const int32_t last = whole.spans.end - num_parts + part;
    const SpanRange spans = {part == 0 ? whole.spans.begin : last, last + 1};
    const int64_t keys = std::min(end, spans.end * kSpanTokens) -
                         std::max(oldest, spans.begin * kSpanTokens);
    work_.push_back({whole.tile, spans, shared, part, keys * whole.tile.num_rows});
  }
}

int32_t AttendInstruction::plan(const Step& step, int threads) {
  // As many query rows as share the loads of a key well; the bits do not depend on it.
  constexpr int32_t kQueriesPerTile = 64;
  const int32_t heads_per_kv = shape_.num_heads / shape_.num_kv_heads;
  const int32_t tile_rows = std::clamp(kQueriesPerTile / heads_per_kv, 1, kMaxTileRows);
  tiles_.clear();
  work_.clear();
  shared_.clear();
  int64_t total = 0;
  for (int32_t s = 0; s < step.num_sequences; ++s) {
    const int32_t* table = step.block_tables + static_cast<size_t>(step.table_stride) * s;
    const int32_t end = step.row_offsets[s + 1];
    for (int32_t row = step.row_offsets[s]; row < end; row += tile_rows)
      for (int32_t head = 0; head < shape_.num_kv_heads; ++head) {
        const AttentionTile tile = {table, step.positions[row], row, std::min(tile_rows, end - row),
                                    head};
        const int64_t keys =
            tile.position + tile.num_rows - first_visible(tile.position, shape_.window);
        tiles_.push_back({tile, visible_spans(tile, shape_.window), -1, 0, keys * tile.num_rows});
        total += tiles_.back().cost;
      }
  }
  // Shared are those that are more than a quarter of a thread's work, unless nearly all of it is
  // in one span.
  size_t used = 0;
  for (const Work& tile : tiles_) {
    const bool large = tile.cost * 4 * threads > total;
    const bool long_context = tile.cost * 2 >= int64_t{3} * kSpanTokens * tile.tile.num_rows;
    if (threads > 1 && large && long_context)
      share(tile, used);
    else
      work_.push_back(tile);
  }
  if (unfinished_.size() < shared_.size())
    unfinished_ = std::vector<std::atomic<int32_t>>(shared_.size());
  for (size_t i = 0; i < shared_.size(); ++i)
    unfinished_[i].store(shared_[i].num_parts, std::memory_order_relaxed);
  // Much work first: what is left at the end is then short.
  std::stable_sort(work_.begin(), work_.end(),
                   [](const Work& a, const Work& b) { return a.cost > b.cost; });
  return static_cast<int32_t>(work_.size());
}

void AttendInstruction::run(int32_t tile, const Step& step, uint8_t* scratch) const {
  const Work& work = work_[static_cast<size_t>(tile)];
  const size_t q_stride = static_cast<size_t>(qkv_->width);
  const size_t out_stride = static_cast<size_t>(out_.width());
  float* out = out_.values->data;
  if (work.shared < 0) {
    kernels_.attend(shape_, step.kv_layout, step.kv, layer_, work.tile, qkv_->data, q_stride, out,
                    out_stride, scratch);
    round(work.tile);
    return;
  }
  const size_t index = static_cast<size_t>(work.shared);
  const SharedTile& shared = shared_[index];
  float* parts = parts_->memory.as<float>() + shared.offset;
  kernels_.attend_spans(shape_, step.kv_layout, step.kv, layer_, work.tile, work.spans, qkv_->data,
                        q_stride, parts + shared.stride * static_cast<size_t>(work.part), scratch);
  if (unfinished_[index].fetch_sub(1, std::memory_order_acq_rel) == 1) {
    kernels_.merge_parts(shape_, work.tile, parts, shared.num_parts, shared.stride, out,
                         out_stride);
    round(work.tile);
  }
}

void AttendInstruction::round(const AttentionTile& tile) const {
  const int32_t width = shape_.num_heads / shape_.num_kv_heads * shape_.head_dim;
  const Range columns{width * tile.kv_head, width * (tile.kv_head + 1)};
  for (int32_t row = tile.row; row < tile.row + tile.num_rows; ++row)
    out_.finish(row, columns, out_.values->row(row) + columns.begin);
}

}  // namespace farthing
