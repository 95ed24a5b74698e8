#include "program/program.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "program/row_instructions.h"

namespace farthing {
namespace {

size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

Program::Program(Isa isa, int32_t max_rows)
    : linear_(linear_kernels(isa)),
      attention_(attention_kernels(isa)),
      elementwise_(elementwise_kernels(isa)),
      max_rows_(max_rows) {
  if (max_rows < 1)
    throw std::invalid_argument("max_rows=" + std::to_string(max_rows) + " must be positive");
}

AlignedBuffer Program::allocate(size_t bytes) {
  workspace_bytes_ += bytes;
  return AlignedBuffer(bytes);
}

int32_t Program::add_float_buffer(RowKind rows, int32_t width) {
  auto buffer = std::make_unique<FloatBuffer>();
  buffer->rows = rows;
  buffer->width = width;
  buffer->memory = allocate(sizeof(float) * static_cast<size_t>(width) * max_rows_);
  buffer->data = buffer->memory.as<float>();
  floats_.push_back(std::move(buffer));
  return static_cast<int32_t>(floats_.size()) - 1;
}

int32_t Program::add_output(RowKind rows, int32_t width) {
  auto buffer = std::make_unique<FloatBuffer>();
  buffer->rows = rows;
  buffer->width = width;
  floats_.push_back(std::move(buffer));
  outputs_.push_back(static_cast<int32_t>(floats_.size()) - 1);
  return outputs_.back();
}

int32_t Program::add_int8_buffer(RowKind rows, int32_t cols, int32_t group) {
  if (group <= 0 || cols % group != 0)
    throw std::invalid_argument("cols=" + std::to_string(cols) + " is not a multiple of the group " +
                                std::to_string(group));
  auto buffer = std::make_unique<Int8Buffer>();
  buffer->rows = rows;
  buffer->cols = cols;
  buffer->group = group;
  const size_t n = static_cast<size_t>(max_rows_);
  buffer->codes_memory = allocate(n * buffer->code_stride());
  buffer->scales_memory = allocate(sizeof(float) * n * static_cast<size_t>(buffer->groups()));
  buffer->sums_memory = allocate(sizeof(int32_t) * n * static_cast<size_t>(buffer->sums_per_row()));
  int8s_.push_back(std::move(buffer));
  return static_cast<int32_t>(int8s_.size()) - 1;
}

int32_t Program::add_rope(std::vector<double> inverse_frequencies, double magnitude) {
  const int32_t half = static_cast<int32_t>(inverse_frequencies.size());
  const int32_t cos = add_float_buffer(RowKind::tokens, half);
  const int32_t sin = add_float_buffer(RowKind::tokens, half);
  ropes_.push_back(std::make_unique<RopeTable>(
      RopeTable{std::move(inverse_frequencies), magnitude, values(cos), values(sin)}));
  instructions_.push_back(std::make_unique<RopeTableInstruction>(attention_, ropes_.back().get()));
  return static_cast<int32_t>(ropes_.size()) - 1;
}

FloatBuffer* Program::values(int32_t index) {
  return index < 0 ? nullptr : floats_.at(static_cast<size_t>(index)).get();
}

Int8Buffer* Program::rounded(int32_t index) {
  return index < 0 ? nullptr : int8s_.at(static_cast<size_t>(index)).get();
}

const FloatBuffer& Program::float_buffer(int32_t index) const {
  return *floats_.at(static_cast<size_t>(index));
}

RowSink Program::sink(const Sink& sink) {
  RowSink result;
  result.values = values(sink.values);
  for (int32_t index : sink.rounded) result.rounded.push_back(rounded(index));
  result.linear = &linear_;
  if (!result.values && result.rounded.empty())
    throw std::invalid_argument("an instruction's result goes nowhere");
  return result;
}

void Program::embed(std::shared_ptr<const Matrix> table, int32_t out) {
  vocab_size_ = table->view().rows;
  instructions_.push_back(
      std::make_unique<EmbedInstruction>(linear_, std::move(table), values(out)));
}

void Program::rms_norm(int32_t x, std::vector<float> weight, float eps, const Sink& out) {
  instructions_.push_back(std::make_unique<RmsNormInstruction>(
      elementwise_, values(x), std::move(weight), eps, sink(out)));
}

void Program::quantize(int32_t x, const Sink& out) {
  instructions_.push_back(std::make_unique<QuantizeInstruction>(values(x), sink(out)));
}

void Program::linear(int32_t x, std::vector<Segment> segments, int32_t add, int32_t out) {
  std::vector<LinearSegment> resolved;
  int32_t outputs = 0;
  for (Segment& s : segments) {
    const MatrixView view = s.matrix->view();
    Int8Buffer* input = rounded(s.rounded);
    const int32_t group = scheme_info(view.scheme).activation_group;
    if (group != (input ? input->group : 0) || (input && input->cols != view.cols) ||
        (!input && (x < 0 || values(x)->width != view.cols)))
      throw std::invalid_argument("a linear segment's input does not fit its matrix");
    outputs += view.rows;
    resolved.push_back({std::move(s.matrix), std::move(s.bias), input});
  }
  FloatBuffer* target = values(out);
  if (resolved.empty() || !target || outputs != target->width)
    throw std::invalid_argument("a linear op's matrices do not fill its output");
  instructions_.push_back(std::make_unique<LinearInstruction>(
      linear_, values(x), target->rows, std::move(resolved), values(add), target));
}

void Program::store_kv(const AttentionShape& shape, int32_t layer, int32_t rope, int32_t qkv) {
  instructions_.push_back(std::make_unique<StoreKvInstruction>(
      attention_, shape, layer, ropes_.at(static_cast<size_t>(rope)).get(), values(qkv)));
}

void Program::attend(const AttentionShape& shape, int32_t layer, int32_t qkv, int32_t out) {
  instructions_.push_back(std::make_unique<AttendInstruction>(attention_, shape, layer, values(qkv),
                                                              values(out)));
}

void Program::gated(int32_t x, Activation activation, const Sink& out) {
  instructions_.push_back(
      std::make_unique<GatedInstruction>(elementwise_, values(x), activation, sink(out)));
}

void Program::add(int32_t a, int32_t b, int32_t out) {
  instructions_.push_back(
      std::make_unique<AddInstruction>(elementwise_, values(a), values(b), values(out)));
}

void Program::scale(int32_t x, float factor, int32_t out) {
  instructions_.push_back(
      std::make_unique<ScaleInstruction>(elementwise_, values(x), factor, values(out)));
}

void Program::softcap(int32_t x, float cap, int32_t out) {
  instructions_.push_back(
      std::make_unique<SoftcapInstruction>(elementwise_, values(x), cap, values(out)));
}

void Program::copy_rows(int32_t x, int32_t out) {
  instructions_.push_back(std::make_unique<CopyRowsInstruction>(values(x), values(out)));
}

void Program::prepare_scratch(int threads) {
  if (threads <= scratch_threads_ && counters_.size() == instructions_.size()) return;
  size_t stride = 64;
  for (const auto& instruction : instructions_)
    stride = std::max(stride, round_up(instruction->scratch_bytes()));
  workspace_bytes_ -= scratch_.bytes();
  scratch_ = allocate(stride * static_cast<size_t>(threads));
  scratch_stride_ = stride;
  scratch_threads_ = threads;
  counters_ = std::vector<TileCounter>(instructions_.size());
  tile_counts_.resize(instructions_.size());
}

void Program::run(ThreadPool& pool, const Step& step, const std::vector<float*>& outputs) {
  const std::lock_guard<std::mutex> lock(running_);
  prepare_scratch(pool.num_threads());
  for (size_t i = 0; i < outputs_.size(); ++i)
    floats_[static_cast<size_t>(outputs_[i])]->data = outputs.at(i);
  for (size_t i = 0; i < instructions_.size(); ++i) {
    counters_[i].next.store(0, std::memory_order_relaxed);
    tile_counts_[i] = instructions_[i]->plan(step, pool.num_threads());
  }
  pool.run([&](int thread) {
    uint8_t* scratch = scratch_.data() + scratch_stride_ * static_cast<size_t>(thread);
    for (size_t i = 0; i < instructions_.size(); ++i) {
      const int32_t tiles = tile_counts_[i];
      for (;;) {
        const int32_t tile = counters_[i].next.fetch_add(1, std::memory_order_relaxed);
        if (tile >= tiles) break;
        instructions_[i]->run(tile, step, scratch);
      }
      pool.barrier().wait();
    }
  });
}

}  // namespace farthing
