#include "program/expert_instructions.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace farthing {
namespace {

constexpr int32_t kTilesPerThread = 8;

size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Of one row, in the form a segment reads.
struct InputBytes {
  size_t values, codes, scales, sums;
};

InputBytes input_bytes(const ExpertSegment& segment) {
  const Int8Buffer* r = segment.rounded;
  if (r == nullptr)
    return {sizeof(float) * static_cast<size_t>(segment.matrices.front()->cols()), 0, 0, 0};
  return {0, r->code_stride(), sizeof(float) * static_cast<size_t>(r->groups()),
          sizeof(int32_t) * static_cast<size_t>(r->sums_per_row())};
}

}  // namespace

Routing::Routing(int32_t experts, int32_t per_token, int32_t max_rows)
    : num_experts(experts), experts_per_token(per_token) {
  const size_t routed = static_cast<size_t>(max_rows) * static_cast<size_t>(per_token);
  chosen.resize(routed);
  token.resize(routed);
  routed_row.resize(routed);
  next_.resize(static_cast<size_t>(experts));
  tiles.reserve(std::min(routed, static_cast<size_t>(experts) + routed / kRowsPerTile));
}

void Routing::group(int32_t tokens) {
  const int32_t routed = tokens * experts_per_token;
  std::fill(next_.begin(), next_.end(), 0);
  for (int32_t i = 0; i < routed; ++i) ++next_[static_cast<size_t>(chosen[i])];
  tiles.clear();
  int32_t first = 0;
  for (int32_t e = 0; e < num_experts; ++e) {
    const int32_t end = first + std::exchange(next_[static_cast<size_t>(e)], first);
    for (; first < end; first += tiles.back().rows.end - first)
      tiles.push_back({e, {first, std::min(first + kRowsPerTile, end)}});
  }
  for (int32_t i = 0; i < routed; ++i) {
    const int32_t row = next_[static_cast<size_t>(chosen[i])]++;
    routed_row[i] = row;
    token[row] = i / experts_per_token;
  }
}

void RouteInstruction::run_row(int32_t row, const Step&, float*) const {
  const int32_t top_k = routing_->experts_per_token;
  kernels_.route_row(logits_->row(row), routing_->num_experts, top_k, normalize_,
                     routing_->chosen.data() + static_cast<size_t>(row) * top_k,
                     weights_->row(row));
}

void GroupRowsInstruction::run(int32_t, const Step& step, uint8_t*) const {
  routing_->group(step.num_tokens);
}

ExpertLinearInstruction::ExpertLinearInstruction(const LinearKernels& kernels,
                                                 const FloatBuffer* x, RowKind input_rows,
                                                 std::vector<ExpertSegment> segments,
                                                 const Routing* routing, FloatBuffer* out)
    : kernels_(kernels),
      x_(x),
      input_rows_(input_rows),
      segments_(std::move(segments)),
      routing_(routing),
      out_(out) {
  for (const ExpertSegment& s : segments_) blocks_ += s.matrices.front()->row_blocks();
}

// How many tiles there are follows from the routing, which the pass itself finds.
int32_t ExpertLinearInstruction::plan(const Step&, int threads) {
  threads_ = threads;
  return 0;
}

// So many parts of an expert's row blocks that all threads have work, few rows or many.
int32_t ExpertLinearInstruction::block_tiles() const {
  const int32_t rows = std::max(1, static_cast<int32_t>(routing_->tiles.size()));
  return std::clamp((kTilesPerThread * threads_ + rows - 1) / rows, 1, blocks_);
}

int32_t ExpertLinearInstruction::tiles(int32_t) const {
  return static_cast<int32_t>(routing_->tiles.size()) * block_tiles();
}

void ExpertLinearInstruction::run(int32_t index, const Step&, uint8_t* scratch) const {
  const int32_t parts = block_tiles();
  const Routing::Tile& tile = routing_->tiles[static_cast<size_t>(index / parts)];
  const int32_t begin = static_cast<int32_t>(int64_t{blocks_} * (index % parts) / parts);
  const int32_t end = static_cast<int32_t>(int64_t{blocks_} * (index % parts + 1) / parts);
  const ExpertSegment* given = nullptr;  // whose input is ready
  Activations a{};
  int32_t first_block = 0, first_output = 0;
  for (const ExpertSegment& segment : segments_) {
    const Matrix& matrix = *segment.matrices[static_cast<size_t>(tile.expert)];
    const int32_t from = std::max(begin - first_block, 0);
    const int32_t to = std::min(end - first_block, matrix.row_blocks());
    if (from < to) {
      if (given == nullptr || given->rounded != segment.rounded)
        a = activations(segment, tile.rows, scratch);
      given = &segment;
      kernels_.linear(matrix.view(), from, to, a, 0, tile.rows.end - tile.rows.begin, nullptr,
                      nullptr, out_->row(tile.rows.begin) + first_output,
                      static_cast<size_t>(out_->width));
    }
    first_block += matrix.row_blocks();
    first_output += matrix.rows();
  }
}

Activations ExpertLinearInstruction::activations(const ExpertSegment& segment, const Range& rows,
                                                 uint8_t* scratch) const {
  if (input_rows_ == RowKind::tokens) return gather(segment, rows, scratch);
  Activations a{};
  a.cols = segment.matrices.front()->cols();
  if (Int8Buffer* rounded = segment.rounded) {
    a.codes = rounded->codes(rows.begin);
    a.scales = rounded->scales(rows.begin);
    a.sums = rounded->sums(rows.begin);
    a.group = rounded->group;
    a.code_stride = rounded->code_stride();
  } else {
    a.values = x_->row(rows.begin);
  }
  return a;
}

Activations ExpertLinearInstruction::gather(const ExpertSegment& segment, const Range& rows,
                                            uint8_t* scratch) const {
  const size_t count = static_cast<size_t>(rows.end - rows.begin);
  const int32_t* token = routing_->token.data() + rows.begin;
  // Copies a row of so many bytes for each routed row; returns where they are.
  const auto copy = [&](size_t bytes, auto row_of) {
    uint8_t* start = scratch;
    for (size_t i = 0; i < count; ++i) std::memcpy(start + i * bytes, row_of(token[i]), bytes);
    scratch += round_up(count * bytes);
    return start;
  };
  const InputBytes bytes = input_bytes(segment);
  Activations a{};
  a.cols = segment.matrices.front()->cols();
  if (Int8Buffer* r = segment.rounded) {
    a.group = r->group;
    a.code_stride = r->code_stride();
    a.codes = reinterpret_cast<const int8_t*>(
        copy(bytes.codes, [r](int32_t row) { return r->codes(row); }));
    a.scales = reinterpret_cast<const float*>(
        copy(bytes.scales, [r](int32_t row) { return r->scales(row); }));
    a.sums = reinterpret_cast<const int32_t*>(
        copy(bytes.sums, [r](int32_t row) { return r->sums(row); }));
  } else {
    a.values = reinterpret_cast<const float*>(
        copy(bytes.values, [this](int32_t row) { return x_->row(row); }));
  }
  return a;
}

size_t ExpertLinearInstruction::scratch_bytes() const {
  size_t most = 0;
  if (input_rows_ != RowKind::tokens) return most;
  for (const ExpertSegment& segment : segments_) {
    constexpr size_t rows = Routing::kRowsPerTile;
    const InputBytes bytes = input_bytes(segment);
    most = std::max(most, round_up(rows * bytes.values) + round_up(rows * bytes.codes) +
                              round_up(rows * bytes.scales) + round_up(rows * bytes.sums));
  }
  return most;
}

void CombineInstruction::run_row(int32_t row, const Step&, float*) const {
  const int32_t top_k = routing_->experts_per_token;
  kernels_.combine_row(x_->data, routing_->routed_row.data() + static_cast<size_t>(row) * top_k,
                       weights_->row(row), top_k, out_->width, add_ ? add_->row(row) : nullptr,
                       out_->row(row));
}

}  // namespace farthing
