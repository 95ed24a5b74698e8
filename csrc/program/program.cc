#include "program/program.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "core/checked_size.h"
#include "program/buffer_checks.h"
#include "program/checks.h"
#include "program/row_instructions.h"

namespace farthing {
namespace {

// `index` into a list of `size` things, or throws.
size_t checked_index(const std::string& what, int32_t index, size_t size) {
  expect(index >= 0 && static_cast<size_t>(index) < size, what, index,
         "from 0 below " + std::to_string(size));
  return static_cast<size_t>(index);
}

void expect_norm(const std::string& what, const HeadNorm& norm, int32_t heads, int32_t head_dim) {
  const int64_t width = static_cast<int64_t>(norm.weight.size());
  expect(width == 0 || width == head_dim || width == int64_t{heads} * head_dim, what + " width",
         width, "0, " + std::to_string(head_dim) + " or " +
         std::to_string(int64_t{heads} * head_dim));
}

}  // namespace

Program::Program(Isa isa, int32_t max_rows)
    : linear_(linear_kernels(isa)),
      attention_(attention_kernels(isa)),
      elementwise_(elementwise_kernels(isa)),
      experts_(expert_kernels(isa)),
      sampling_(sampling_kernels(isa)),
      max_rows_(max_rows) {
  expect_positive("max_rows", max_rows);
}

void Program::set_routing(int32_t num_experts, int32_t experts_per_token) {
  if (routing_) throw std::invalid_argument("a program has one routing");
  expect_positive("routing num_experts", num_experts);
  expect(experts_per_token > 0 && experts_per_token <= num_experts, "routing experts_per_token",
         experts_per_token, "from 1 to num_experts " + std::to_string(num_experts));
  expect(int64_t{max_rows_} * experts_per_token <= INT32_MAX, "routing experts_per_token",
         experts_per_token, "at most 2^31 over max_rows " + std::to_string(max_rows_));
  routing_ = std::make_unique<Routing>(num_experts, experts_per_token, max_rows_);
}

Routing& Program::routing(const std::string& what) {
  if (!routing_) throw std::invalid_argument(what + " needs a routing");
  return *routing_;
}

AlignedBuffer Program::allocate(RowKind rows, size_t count, size_t element_bytes) {
  const int32_t copies =
      rows == RowKind::routed ? routing("a buffer of routed rows").experts_per_token : 1;
  AlignedBuffer buffer(checked_product(
      {count, element_bytes, static_cast<size_t>(max_rows_), static_cast<size_t>(copies)}));
  workspace_bytes_ += buffer.bytes();
  return buffer;
}

int32_t Program::add_float_buffer(RowKind rows, int32_t width) {
  expect_positive("float buffer width", width);
  auto buffer = std::make_unique<FloatBuffer>();
  buffer->rows = rows;
  buffer->width = width;
  buffer->memory = allocate(rows, static_cast<size_t>(width), sizeof(float));
  buffer->data = buffer->memory.as<float>();
  floats_.push_back(std::move(buffer));
  return static_cast<int32_t>(floats_.size()) - 1;
}

int32_t Program::add_output(RowKind rows, int32_t width) {
  expect_positive("output width", width);
  if (rows == RowKind::routed) throw std::invalid_argument("routed rows cannot be an output");
  auto buffer = std::make_unique<FloatBuffer>();
  buffer->rows = rows;
  buffer->width = width;
  floats_.push_back(std::move(buffer));
  outputs_.push_back(static_cast<int32_t>(floats_.size()) - 1);
  return outputs_.back();
}

int32_t Program::add_int8_buffer(RowKind rows, int32_t cols, int32_t group) {
  expect(group == 16 || group == 32 || group == 64 || group == 128 || group == 256,
         "int8 buffer group", group, "16, 32, 64, 128 or 256");
  expect(cols > 0 && cols <= Matrix::kMostCols, "int8 buffer cols", cols,
         "from 1 to " + std::to_string(Matrix::kMostCols));
  auto buffer = std::make_unique<Int8Buffer>();
  buffer->rows = rows;
  buffer->cols = cols;
  buffer->group = group;
  buffer->codes_memory = allocate(rows, buffer->code_stride(), 1);
  buffer->scales_memory = allocate(rows, static_cast<size_t>(buffer->groups()), sizeof(float));
  buffer->sums_memory =
      allocate(rows, static_cast<size_t>(buffer->sums_per_row()), sizeof(int32_t));
  int8s_.push_back(std::move(buffer));
  return static_cast<int32_t>(int8s_.size()) - 1;
}

int32_t Program::add_rope(std::vector<double> inverse_frequencies, double magnitude) {
  const int32_t half = static_cast<int32_t>(inverse_frequencies.size());
  FloatBuffer* cos = &values("rope cos", add_float_buffer(RowKind::tokens, half));
  FloatBuffer* sin = &values("rope sin", add_float_buffer(RowKind::tokens, half));
  ropes_.push_back(std::make_unique<RopeTable>(
      RopeTable{std::move(inverse_frequencies), magnitude, cos, sin}));
  instructions_.push_back(std::make_unique<RopeTableInstruction>(attention_, ropes_.back().get()));
  return static_cast<int32_t>(ropes_.size()) - 1;
}

FloatBuffer& Program::values(const std::string& what, int32_t index) {
  return *floats_[checked_index(what, index, floats_.size())];
}

Int8Buffer& Program::rounded(const std::string& what, int32_t index) {
  return *int8s_[checked_index(what, index, int8s_.size())];
}

const FloatBuffer& Program::float_buffer(int32_t index) const {
  return *floats_[checked_index("float buffer", index, floats_.size())];
}

std::optional<RowKind> Program::sink_rows(const Sink& sink) const {
  const auto in = [](int32_t i, const auto& list) {
    return i >= 0 && static_cast<size_t>(i) < list.size();
  };
  if (in(sink.values, floats_)) return floats_[static_cast<size_t>(sink.values)]->rows;
  if (!sink.rounded.empty() && in(sink.rounded.front(), int8s_))
    return int8s_[static_cast<size_t>(sink.rounded.front())]->rows;
  return std::nullopt;
}

RowSink Program::sink(const std::string& what, const Sink& sink, RowKind rows, int32_t width) {
  RowSink result;
  result.linear = &linear_;
  if (sink.values != -1) {
    result.values = &values(what + " out", sink.values);
    expect_like(what + " out", *result.values, rows, width);
  }
  for (int32_t index : sink.rounded) {
    Int8Buffer& buffer = rounded(what + " rounded out", index);
    expect_rows(what + " rounded out", buffer.rows, rows);
    expect_equal(what + " rounded out cols", buffer.cols, width);
    result.rounded.push_back(&buffer);
  }
  if (!result.values && result.rounded.empty())
    throw std::invalid_argument(what + " result goes nowhere");
  return result;
}

void Program::embed(std::shared_ptr<const Matrix> table, int32_t out) {
  if (!table) throw std::invalid_argument("embed has no table");
  FloatBuffer& target = values("embed out", out);
  expect_like("embed out", target, RowKind::tokens, table->cols());
  // Tokens are checked against one number of them.
  if (vocab_size_ != 0) expect_equal("embed table rows", table->rows(), vocab_size_);
  vocab_size_ = table->rows();
  instructions_.push_back(std::make_unique<EmbedInstruction>(linear_, std::move(table), &target));
}

void Program::rms_norm(int32_t x, std::vector<float> weight, float eps, const Sink& out) {
  const FloatBuffer& input = values("rms_norm x", x);
  expect_equal("rms_norm weight length", static_cast<int64_t>(weight.size()), input.width);
  // Into rows that the step lists, or as many as there are.
  const RowKind to = sink_rows(out).value_or(input.rows);
  const bool gathered = to == RowKind::logits || to == RowKind::hidden;
  RowSink target = sink("rms_norm", out, gathered ? to : input.rows, input.width);
  if (gathered && to != input.rows) expect_rows("rms_norm x", input.rows, RowKind::tokens);
  instructions_.push_back(std::make_unique<RmsNormInstruction>(
      elementwise_, &input, std::move(weight), eps, std::move(target)));
}

void Program::quantize(int32_t x, const Sink& out) {
  const FloatBuffer& input = values("quantize x", x);
  instructions_.push_back(std::make_unique<QuantizeInstruction>(
      &input, sink("quantize", out, input.rows, input.width)));
}

LinearSegment Program::checked_segment(const std::string& what, Segment segment, int32_t x,
                                       RowKind rows) {
  if (!segment.matrix) throw std::invalid_argument("a " + what + " segment has no matrix");
  const MatrixView view = segment.matrix->view();
  const int32_t group = activation_group(view.scheme);
  Int8Buffer* codes = nullptr;
  if (group != 0) {
    codes = &rounded(what + " rounded input", segment.rounded);
    expect_rows(what + " rounded input", codes->rows, rows);
    expect_equal(what + " rounded input group", codes->group, group);
    expect_equal(what + " rounded input cols", codes->cols, view.cols);
  } else {
    expect_equal(what + " rounded input of a float matrix", segment.rounded, -1);
    expect_like(what + " x", values(what + " x", x), rows, view.cols);
  }
  if (!segment.bias.empty())
    expect_equal(what + " bias length", static_cast<int64_t>(segment.bias.size()), view.rows);
  return {std::move(segment.matrix), std::move(segment.bias), codes};
}

void Program::linear(int32_t x, std::vector<Segment> segments, int32_t add, int32_t out) {
  FloatBuffer& target = values("linear out", out);
  const FloatBuffer* input = x == -1 ? nullptr : &values("linear x", x);
  const FloatBuffer* addend = add == -1 ? nullptr : &values("linear add", add);
  if (addend) expect_like("linear add", *addend, target.rows, target.width);
  std::vector<LinearSegment> resolved;
  int64_t outputs = 0;
  for (Segment& s : segments) {
    resolved.push_back(checked_segment("linear", std::move(s), x, target.rows));
    const Matrix& matrix = *resolved.back().matrix;
    expect_equal("linear matrix cols", matrix.cols(), resolved.front().matrix->cols());
    outputs += matrix.rows();
  }
  expect_equal("linear out width", target.width, outputs);
  instructions_.push_back(std::make_unique<LinearInstruction>(
      linear_, input, target.rows, std::move(resolved), addend, &target));
}

void Program::head(int32_t start, std::vector<HeadOp> ops, int32_t out) {
  FloatBuffer& target = values("head out", out);
  expect_rows("head out", target.rows, RowKind::kept);
  expect(target.width <= Matrix::kMostRows, "head out width", target.width,
         "at most " + std::to_string(Matrix::kMostRows));
  if (has_head_) throw std::invalid_argument("a program has one head");
  const FloatBuffer* begin = start == -1 ? nullptr : &values("head start", start);
  if (begin) expect_like("head start", *begin, RowKind::logits, target.width);
  std::vector<HeadStage> stages;
  for (HeadOp& op : ops) {
    if (const HeadNumber* number = std::get_if<HeadNumber>(&op)) {
      stages.push_back({number->kind, {}, nullptr, number->number});
    } else {
      HeadLinear& linear = std::get<HeadLinear>(op);
      LinearSegment segment =
          checked_segment("head", std::move(linear.segment), linear.x, RowKind::logits);
      expect_equal("head matrix rows", segment.matrix->rows(), target.width);
      const FloatBuffer* x = segment.rounded ? nullptr : &values("head x", linear.x);
      stages.push_back({HeadStage::Kind::linear, std::move(segment), x, 0.0f});
    }
  }
  if (!begin && (stages.empty() || stages.front().kind != HeadStage::Kind::linear))
    throw std::invalid_argument("head has nothing to begin with");
  auto head = std::make_unique<HeadInstruction>(linear_, elementwise_, sampling_, begin,
                                                std::move(stages), &target);
  auto pick = std::make_unique<PickInstruction>(head.get());
  instructions_.push_back(std::move(head));
  instructions_.push_back(std::move(pick));
  has_head_ = true;
}

FloatBuffer& Program::checked_qkv(const AttentionShape& shape, int32_t layer, int32_t qkv) {
  expect(layer >= 0, "attention layer", layer, "at least 0");
  expect_positive("attention num_kv_heads", shape.num_kv_heads);
  expect(shape.num_heads > 0 && shape.num_heads % shape.num_kv_heads == 0, "attention num_heads",
         shape.num_heads, "a positive multiple of num_kv_heads " +
         std::to_string(shape.num_kv_heads));
  expect(shape.head_dim > 0 && shape.head_dim % kLanes == 0, "attention head_dim", shape.head_dim,
         "a positive multiple of " + std::to_string(kLanes));
  expect(shape.window >= 0, "attention window", shape.window, "at least 0");
  FloatBuffer& buffer = values("attention qkv", qkv);
  const int64_t heads = shape.num_heads + 2 * int64_t{shape.num_kv_heads};
  expect_rows("attention qkv", buffer.rows, RowKind::tokens);
  expect(buffer.width % shape.head_dim == 0 && buffer.width / shape.head_dim == heads,
         "attention qkv width", buffer.width,
         std::to_string(heads) + " heads of " + std::to_string(shape.head_dim));
  return buffer;
}

void Program::store_kv(const AttentionShape& shape, int32_t layer, HeadNorm q_norm,
                       HeadNorm k_norm, int32_t rope, int32_t qkv) {
  FloatBuffer& buffer = checked_qkv(shape, layer, qkv);
  expect_norm("attention q_norm", q_norm, shape.num_heads, shape.head_dim);
  expect_norm("attention k_norm", k_norm, shape.num_kv_heads, shape.head_dim);
  const RopeTable* table = nullptr;
  if (rope != -1) {
    table = ropes_[checked_index("attention rope", rope, ropes_.size())].get();
    expect(2 * int64_t{table->half_dim()} <= shape.head_dim, "rope dim",
           2 * int64_t{table->half_dim()}, "at most head_dim " + std::to_string(shape.head_dim));
  }
  if (kv_needs_.num_layers != 0) {  // one cache serves all layers
    expect_equal("attention num_kv_heads", shape.num_kv_heads, kv_needs_.num_kv_heads);
    expect_equal("attention head_dim", shape.head_dim, kv_needs_.head_dim);
  }
  kv_needs_ = {std::max(kv_needs_.num_layers, int64_t{layer} + 1), shape.num_kv_heads,
               shape.head_dim};
  instructions_.push_back(
      std::make_unique<StoreKvInstruction>(attention_, elementwise_, shape, layer,
                                           std::move(q_norm), std::move(k_norm), table, &buffer));
}

void Program::attend(const AttentionShape& shape, int32_t layer, int32_t qkv, const Sink& out) {
  const FloatBuffer& input = checked_qkv(shape, layer, qkv);
  values("attention out", out.values);
  RowSink target =
      sink("attention", out, RowKind::tokens, shape.num_heads * shape.head_dim);
  const int32_t columns = shape.num_heads / shape.num_kv_heads * shape.head_dim;
  for (const Int8Buffer* buffer : target.rounded)
    // What is rounded is filled up to whole spans, which would then be another head's columns.
    expect(padded_cols(columns, buffer->group) == columns, "attention columns of a kv head",
           columns, "whole groups of " + std::to_string(buffer->group) + " and whole " +
           std::to_string(kSpanCols) + "s to be rounded by themselves");
  if (!attention_parts_) {
    attention_parts_ = std::make_unique<AttentionParts>();
    attention_parts_->memory = AlignedBuffer(AttentionParts::kFloats * sizeof(float));
    workspace_bytes_ += attention_parts_->memory.bytes();
  }
  instructions_.push_back(std::make_unique<AttendInstruction>(
      attention_, shape, layer, attention_parts_.get(), &input, std::move(target)));
}

void Program::gated(int32_t x, Activation activation, const Sink& out) {
  const FloatBuffer& input = values("gated x", x);
  expect(input.width % 2 == 0, "gated x width", input.width, "even: gate and up side by side");
  instructions_.push_back(std::make_unique<GatedInstruction>(
      elementwise_, &input, activation, sink("gated", out, input.rows, input.width / 2)));
}

void Program::route(int32_t logits, bool normalize, int32_t weights) {
  Routing& r = routing("route");
  const FloatBuffer& input = values("route logits", logits);
  FloatBuffer& target = values("route weights", weights);
  expect_like("route logits", input, RowKind::tokens, r.num_experts);
  expect_like("route weights", target, RowKind::tokens, r.experts_per_token);
  instructions_.push_back(
      std::make_unique<RouteInstruction>(experts_, &input, normalize, &r, &target));
  instructions_.push_back(std::make_unique<GroupRowsInstruction>(&r));
}

ExpertSegment Program::checked_stack(ExpertStack stack, const FloatBuffer* x, RowKind& input_rows,
                                     int32_t& cols) {
  expect_equal("expert_linear matrices", static_cast<int64_t>(stack.matrices.size()),
               routing("expert_linear").num_experts);
  if (!stack.matrices.front()) throw std::invalid_argument("an expert has no matrix");
  const MatrixView first = stack.matrices.front()->view();
  const int32_t group = activation_group(first.scheme);
  for (const auto& matrix : stack.matrices) {
    if (!matrix) throw std::invalid_argument("an expert has no matrix");
    expect_equal("expert_linear matrix rows", matrix->rows(), first.rows);
    expect_equal("expert_linear matrix cols", matrix->cols(), first.cols);
    expect_equal("expert_linear matrix activation group",
                 activation_group(matrix->scheme()), group);
  }
  if (cols != 0) expect_equal("expert_linear matrix cols", first.cols, cols);
  Int8Buffer* codes = nullptr;
  RowKind rows;
  if (group != 0) {
    codes = &rounded("expert_linear rounded input", stack.rounded);
    expect_equal("expert_linear rounded input group", codes->group, group);
    expect_equal("expert_linear rounded input cols", codes->cols, first.cols);
    rows = codes->rows;
  } else {
    expect_equal("expert_linear rounded input of float matrices", stack.rounded, -1);
    if (!x) throw std::invalid_argument("expert_linear of float matrices has no x");
    expect_equal("expert_linear x width", x->width, first.cols);
    rows = x->rows;
  }
  if (cols != 0 || rows != RowKind::routed)
    expect_rows("expert_linear input", rows, cols != 0 ? input_rows : RowKind::tokens);
  input_rows = rows;
  cols = first.cols;
  return {std::move(stack.matrices), codes};
}

void Program::expert_linear(int32_t x, std::vector<ExpertStack> stacks, int32_t out) {
  const Routing& r = routing("expert_linear");
  const FloatBuffer* input = x == -1 ? nullptr : &values("expert_linear x", x);
  FloatBuffer& target = values("expert_linear out", out);
  if (stacks.empty()) throw std::invalid_argument("expert_linear has no matrices");
  std::vector<ExpertSegment> segments;
  RowKind input_rows = RowKind::tokens;
  int32_t cols = 0;
  int64_t outputs = 0;
  for (ExpertStack& stack : stacks) {
    segments.push_back(checked_stack(std::move(stack), input, input_rows, cols));
    outputs += segments.back().matrices.front()->rows();
  }
  expect_like("expert_linear out", target, RowKind::routed, outputs);
  instructions_.push_back(std::make_unique<ExpertLinearInstruction>(
      linear_, input, input_rows, std::move(segments), &r, &target));
}

void Program::combine(int32_t x, int32_t weights, int32_t add, int32_t out) {
  const Routing& r = routing("combine");
  FloatBuffer& target = values("combine out", out);
  const FloatBuffer& input = values("combine x", x);
  const FloatBuffer& factors = values("combine weights", weights);
  const FloatBuffer* addend = add == -1 ? nullptr : &values("combine add", add);
  expect_rows("combine out", target.rows, RowKind::tokens);
  expect_like("combine x", input, RowKind::routed, target.width);
  expect_like("combine weights", factors, RowKind::tokens, r.experts_per_token);
  if (addend) expect_like("combine add", *addend, target.rows, target.width);
  instructions_.push_back(
      std::make_unique<CombineInstruction>(experts_, &input, &factors, &r, addend, &target));
}

void Program::add(int32_t a, int32_t b, int32_t out) {
  FloatBuffer& target = values("add out", out);
  const FloatBuffer& left = values("add a", a);
  const FloatBuffer& right = values("add b", b);
  expect_like("add a", left, target.rows, target.width);
  expect_like("add b", right, target.rows, target.width);
  instructions_.push_back(std::make_unique<AddInstruction>(elementwise_, &left, &right, &target));
}

void Program::scale(int32_t x, float factor, int32_t out) {
  FloatBuffer& target = values("scale out", out);
  const FloatBuffer& input = values("scale x", x);
  expect_like("scale x", input, target.rows, target.width);
  instructions_.push_back(
      std::make_unique<ScaleInstruction>(elementwise_, &input, factor, &target));
}

void Program::softcap(int32_t x, float cap, int32_t out) {
  FloatBuffer& target = values("softcap out", out);
  const FloatBuffer& input = values("softcap x", x);
  expect_like("softcap x", input, target.rows, target.width);
  instructions_.push_back(
      std::make_unique<SoftcapInstruction>(elementwise_, &input, cap, &target));
}

void Program::copy_rows(int32_t x, int32_t out) {
  FloatBuffer& target = values("copy_rows out", out);
  const FloatBuffer& input = values("copy_rows x", x);
  expect_equal("copy_rows x width", input.width, target.width);
  // Other rows than its own are gathered, and the step lists rows of T.
  if (target.rows != input.rows) {
    expect_rows("copy_rows x", input.rows, RowKind::tokens);
    if (target.rows == RowKind::routed) expect_rows("copy_rows out", target.rows, input.rows);
  }
  instructions_.push_back(std::make_unique<CopyRowsInstruction>(&input, &target));
}

}  // namespace farthing
