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

int32_t AttendInstruction::plan(const Step& step, int) {
  // As many query rows as share the loads of a key well; the bits do not depend on it.
  constexpr int32_t kQueriesPerTile = 64;
  const int32_t heads_per_kv = shape_.num_heads / shape_.num_kv_heads;
  const int32_t tile_rows = std::clamp(kQueriesPerTile / heads_per_kv, 1, kMaxTileRows);
  tiles_.clear();
  for (int32_t s = 0; s < step.num_sequences; ++s) {
    const int32_t* table = step.block_tables + static_cast<size_t>(step.table_stride) * s;
    const int32_t end = step.row_offsets[s + 1];
    for (int32_t row = step.row_offsets[s]; row < end; row += tile_rows)
      for (int32_t head = 0; head < shape_.num_kv_heads; ++head)
        tiles_.push_back(
            {table, step.positions[row], row, std::min(tile_rows, end - row), head});
  }
  // Long contexts first: what is left at the end is then short.
  std::stable_sort(tiles_.begin(), tiles_.end(), [](const AttentionTile& a, const AttentionTile& b) {
    return a.position > b.position;
  });
  return static_cast<int32_t>(tiles_.size());
}

void AttendInstruction::run(int32_t tile, const Step& step, uint8_t* scratch) const {
  kernels_.attend(shape_, step.kv_layout, step.kv, layer_, tiles_[static_cast<size_t>(tile)],
                  qkv_->data, static_cast<size_t>(qkv_->width), out_->data,
                  static_cast<size_t>(out_->width), scratch);
}

}  // namespace farthing
