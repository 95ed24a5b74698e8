// The program player, the thread team and the KV pool as Python sees them.
#include "program/program.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <variant>

#include "bindings/numpy_arrays.h"
#include "bindings/registry.h"
#include "core/kv_pool.h"

namespace nb = nanobind;

namespace farthing {
namespace {

using IntVector = InArray<int32_t, 1>;
using IntMatrix = InArray<int32_t, 2>;
using TokenVector = InOutArray<int32_t, 1>;
using FloatMatrix = InOutArray<float, 2>;
using PyExpertStack = std::tuple<std::vector<std::shared_ptr<Matrix>>, int32_t>;
using PySegment = std::tuple<std::shared_ptr<Matrix>, std::vector<float>, int32_t>;
using PyHeadLinear = std::tuple<int32_t, PySegment>;   // x, segment
using PyHeadNumber = std::tuple<std::string, float>;   // scale or softcap, its number
using PyHeadOp = std::variant<PyHeadLinear, PyHeadNumber>;

RowKind row_kind(const std::string& name) {
  if (name == "T") return RowKind::tokens;
  if (name == "R") return RowKind::logits;
  if (name == "H") return RowKind::hidden;
  if (name == "E") return RowKind::routed;
  if (name == "K") return RowKind::kept;
  throw std::invalid_argument("rows='" + name + "' must be T, R, H, E or K");
}

Activation activation(const std::string& name) {
  if (name == "silu") return Activation::silu;
  if (name == "gelu_tanh") return Activation::gelu_tanh;
  throw std::invalid_argument("activation='" + name + "' must be silu or gelu_tanh");
}

Program::Segment segment(PySegment given) {
  auto& [matrix, bias, rounded] = given;
  return {std::move(matrix), std::move(bias), rounded};
}

HeadStage::Kind head_kind(const std::string& name) {
  if (name == "scale") return HeadStage::Kind::scale;
  if (name == "softcap") return HeadStage::Kind::softcap;
  throw std::invalid_argument("head op '" + name + "' must be scale or softcap");
}

void require(bool good, const char* name, int64_t value, const std::string& right) {
  if (!good)
    throw std::invalid_argument(std::string(name) + " has " + std::to_string(value) + ", must be " +
                                right);
}

void check_kv(const Program::KvNeeds& needs, const KvLayout& kv) {
  require(kv.num_layers >= needs.num_layers, "kv num_layers", kv.num_layers,
          std::to_string(needs.num_layers) + " or more");
  if (needs.num_layers == 0) return;
  require(kv.num_kv_heads == needs.num_kv_heads, "kv num_kv_heads", kv.num_kv_heads,
          std::to_string(needs.num_kv_heads));
  require(kv.head_dim == needs.head_dim, "kv head_dim", kv.head_dim,
          std::to_string(needs.head_dim));
}

// Two writers of a block would race, and each would read the other's tokens.
void check_written_once(const Step& step) {
  std::vector<int32_t> written;
  for (int32_t s = 0; s < step.num_sequences; ++s) {
    const int32_t* table = step.block_tables + static_cast<size_t>(step.table_stride) * s;
    const int32_t first = step.positions[step.row_offsets[s]] / kBlockTokens;
    const int32_t last = step.positions[step.row_offsets[s + 1] - 1] / kBlockTokens;
    written.insert(written.end(), table + first, table + last + 1);
  }
  std::sort(written.begin(), written.end());
  const auto twice = std::adjacent_find(written.begin(), written.end());
  if (twice != written.end())
    throw std::invalid_argument("block_tables: block " + std::to_string(*twice) +
                                " is written twice in one step");
}

// A kernel trusts its indices, so every one is checked here, before the GIL is released.
void check_indices(const Step& step, const Program& program, const KvPool& kv) {
  check_kv(program.kv_needs(), kv.layout());
  const std::string vocab = "from 0 below " + std::to_string(program.vocab_size());
  const std::string blocks = "from 0 below " + std::to_string(kv.num_blocks());
  for (int32_t i = 0; i < step.num_tokens; ++i)
    require(step.tokens[i] >= 0 && step.tokens[i] < program.vocab_size(), "tokens", step.tokens[i],
            vocab);
  require(step.row_offsets[0] == 0, "row_offsets", step.row_offsets[0], "0 at first");
  require(step.row_offsets[step.num_sequences] == step.num_tokens, "row_offsets",
          step.row_offsets[step.num_sequences], "the number of tokens at last");
  for (int32_t s = 0; s < step.num_sequences; ++s) {
    const int32_t begin = step.row_offsets[s], end = step.row_offsets[s + 1];
    require(begin < end && end <= step.num_tokens, "row_offsets", end,
            "ascending, at most the number of tokens");
    require(step.positions[begin] >= 0, "positions", step.positions[begin], "at least 0");
    for (int32_t row = begin + 1; row < end; ++row)
      require(step.positions[row] == int64_t{step.positions[row - 1]} + 1, "positions",
              step.positions[row], "consecutive within a sequence");
    const int32_t used = step.positions[end - 1] / kBlockTokens + 1;
    require(used <= step.table_stride, "block_tables", step.table_stride,
            std::to_string(used) + " columns or more");
    const int32_t* table = step.block_tables + static_cast<size_t>(step.table_stride) * s;
    for (int32_t b = 0; b < used; ++b)
      require(table[b] >= 0 && table[b] < kv.num_blocks(), "block_tables", table[b], blocks);
  }
  check_written_once(step);
  for (int32_t i = 0; i < step.num_logit_rows; ++i)
    require(step.logit_rows[i] >= 0 && step.logit_rows[i] < step.num_tokens, "logit_rows",
            step.logit_rows[i], "a row of the step");
  for (int32_t i = 0; i < step.num_argmax_rows; ++i)
    require(step.argmax_rows[i] >= 0 && step.argmax_rows[i] < step.num_tokens, "argmax_rows",
            step.argmax_rows[i], "a row of the step");
  for (int32_t i = 0; i < step.num_hidden_rows; ++i)
    require(step.hidden_rows[i] >= 0 && step.hidden_rows[i] < step.num_tokens, "hidden_rows",
            step.hidden_rows[i], "a row of the step");
}

void run(Program& program, ThreadPool& pool, KvPool& kv, const IntVector& tokens,
         const IntVector& positions, const IntVector& row_offsets, const IntMatrix& block_tables,
         const IntVector& logit_rows, const IntVector& argmax_rows, const IntVector& hidden_rows,
         std::vector<FloatMatrix> outputs, const TokenVector& argmax) {
  // The rows of every kind, so that they can be counted in 32 bits from here on.
  for (const size_t rows : {tokens.shape(0), logit_rows.shape(0) + argmax_rows.shape(0),
                            hidden_rows.shape(0)})
    require(rows <= static_cast<size_t>(program.max_rows()), "the step",
            static_cast<int64_t>(rows),
            "at most " + std::to_string(program.max_rows()) + " rows");
  Step step{};
  step.num_tokens = static_cast<int32_t>(tokens.shape(0));
  step.tokens = tokens.data();
  require(positions.shape(0) == tokens.shape(0), "positions",
          static_cast<int64_t>(positions.shape(0)), std::to_string(step.num_tokens) + " entries");
  step.positions = positions.data();
  require(row_offsets.shape(0) >= 2, "row_offsets", static_cast<int64_t>(row_offsets.shape(0)),
          "2 entries or more");
  step.num_sequences = extent_of(row_offsets.shape(0)) - 1;
  step.row_offsets = row_offsets.data();
  require(extent_of(block_tables.shape(0)) == step.num_sequences, "block_tables",
          static_cast<int64_t>(block_tables.shape(0)),
          std::to_string(step.num_sequences) + " rows");
  step.block_tables = block_tables.data();
  step.table_stride = extent_of(block_tables.shape(1));
  step.num_logit_rows = static_cast<int32_t>(logit_rows.shape(0));
  step.logit_rows = logit_rows.data();
  step.num_argmax_rows = static_cast<int32_t>(argmax_rows.shape(0));
  step.argmax_rows = argmax_rows.data();
  require(argmax.shape(0) == argmax_rows.shape(0), "argmax", static_cast<int64_t>(argmax.shape(0)),
          std::to_string(step.num_argmax_rows) + " entries");
  require(step.num_argmax_rows == 0 || program.has_head(), "argmax_rows", step.num_argmax_rows,
          "empty for a program without a head");
  step.argmax_tokens = argmax.data();
  step.num_hidden_rows = static_cast<int32_t>(hidden_rows.shape(0));
  step.hidden_rows = hidden_rows.data();
  step.experts_per_token = program.experts_per_token();
  step.kv_layout = kv.layout();
  step.kv = kv.data();
  check_indices(step, program, kv);

  require(outputs.size() == program.outputs().size(), "outputs",
          static_cast<int64_t>(outputs.size()),
          std::to_string(program.outputs().size()) + " arrays");
  std::vector<float*> targets;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const FloatBuffer& buffer = program.float_buffer(program.outputs()[i]);
    const int32_t rows = step.rows(buffer.rows);
    require(outputs[i].shape(0) == static_cast<size_t>(rows) &&
                outputs[i].shape(1) == static_cast<size_t>(buffer.width),
            "outputs", static_cast<int64_t>(outputs[i].shape(0)),
            "(" + std::to_string(rows) + ", " + std::to_string(buffer.width) + ")");
    targets.push_back(outputs[i].data());
  }
  const nb::gil_scoped_release release;
  program.run(pool, step, targets);
}

}  // namespace
}  // namespace farthing

FARTHING_BIND(program) {
  using namespace farthing;
  nb::class_<KvPool>(m, "KvPool")
      .def("__init__",
           [](KvPool* self, const std::string& dtype, int32_t num_layers, int32_t num_kv_heads,
              int32_t head_dim, int64_t num_blocks) {
             new (self) KvPool(kv_layout(dtype, num_layers, num_kv_heads, head_dim), num_blocks);
           },
           nb::arg("dtype"), nb::arg("num_layers"), nb::arg("num_kv_heads"), nb::arg("head_dim"),
           nb::arg("num_blocks"))
      .def_prop_ro("num_blocks", &KvPool::num_blocks)
      .def_prop_ro("nbytes", &KvPool::bytes)
      .def_prop_ro("block_bytes", [](const KvPool& p) { return p.layout().block_bytes(); })
      .def(
          "block",
          [](KvPool& pool, int64_t index) {
            return OutArray<uint8_t>(pool.block(index), {pool.layout().block_bytes()});
          },
          nb::arg("index"), nb::rv_policy::reference_internal)
      .def("copy_block", &KvPool::copy_block, nb::arg("source"), nb::arg("target"));

  nb::class_<Program>(m, "Program")
      .def("__init__",
           [](Program* self, int32_t max_rows, const std::string& isa) {
             const auto parsed = parse_isa(isa);
             if (!parsed || !isa_supported(*parsed))
               throw std::invalid_argument("isa='" + isa + "' cannot run on this machine");
             new (self) Program(*parsed, max_rows);
           },
           nb::arg("max_rows"), nb::arg("isa"))
      .def_prop_ro("max_rows", &Program::max_rows)
      .def_prop_ro("workspace_bytes", &Program::workspace_bytes)
      .def("float_buffer",
           [](Program& p, const std::string& rows, int32_t width) {
             return p.add_float_buffer(row_kind(rows), width);
           })
      .def("int8_buffer",
           [](Program& p, const std::string& rows, int32_t cols, int32_t group) {
             return p.add_int8_buffer(row_kind(rows), cols, group);
           })
      .def("output",
           [](Program& p, const std::string& rows, int32_t width) {
             return p.add_output(row_kind(rows), width);
           })
      .def("routing", &Program::set_routing, nb::arg("num_experts"), nb::arg("experts_per_token"))
      .def("rope", &Program::add_rope, nb::arg("inverse_frequencies"), nb::arg("magnitude"))
      .def("embed", [](Program& p, std::shared_ptr<Matrix> table,
                       int32_t out) { p.embed(std::move(table), out); })
      .def("rms_norm",
           [](Program& p, int32_t x, std::vector<float> weight, float eps, int32_t values,
              std::vector<int32_t> rounded) {
             p.rms_norm(x, std::move(weight), eps, {values, std::move(rounded)});
           })
      .def("quantize", [](Program& p, int32_t x,
                          std::vector<int32_t> rounded) { p.quantize(x, {-1, std::move(rounded)}); })
      .def("linear",
           [](Program& p, int32_t x, std::vector<PySegment> segments, int32_t add, int32_t out) {
             std::vector<Program::Segment> list;
             for (PySegment& given : segments) list.push_back(segment(std::move(given)));
             p.linear(x, std::move(list), add, out);
           })
      .def("attention",
           [](Program& p, int32_t qkv, int32_t out, int32_t layer, int32_t num_heads,
              int32_t num_kv_heads, int32_t head_dim, float scale, float softcap, int32_t window,
              int32_t rope, std::vector<float> q_norm, std::vector<float> k_norm, float norm_eps,
              std::vector<int32_t> rounded) {
             const AttentionShape shape{num_heads, num_kv_heads, head_dim, scale, softcap, window};
             p.store_kv(shape, layer, {std::move(q_norm), norm_eps}, {std::move(k_norm), norm_eps},
                        rope, qkv);
             p.attend(shape, layer, qkv, {out, std::move(rounded)});
           },
           nb::arg("qkv"), nb::arg("out"), nb::arg("layer"), nb::arg("num_heads"),
           nb::arg("num_kv_heads"), nb::arg("head_dim"), nb::arg("scale"), nb::arg("softcap"),
           nb::arg("window"), nb::arg("rope"), nb::arg("q_norm"), nb::arg("k_norm"),
           nb::arg("norm_eps"), nb::arg("rounded"))
      .def("gated",
           [](Program& p, int32_t x, const std::string& name, int32_t values,
              std::vector<int32_t> rounded) {
             p.gated(x, activation(name), {values, std::move(rounded)});
           })
      .def("head",
           [](Program& p, int32_t start, std::vector<PyHeadOp> ops, int32_t out) {
             std::vector<Program::HeadOp> list;
             for (PyHeadOp& op : ops) {
               if (PyHeadLinear* linear = std::get_if<PyHeadLinear>(&op)) {
                 auto& [x, given] = *linear;
                 list.emplace_back(Program::HeadLinear{x, segment(std::move(given))});
               } else {
                 const auto& [kind, number] = std::get<PyHeadNumber>(op);
                 list.emplace_back(Program::HeadNumber{head_kind(kind), number});
               }
             }
             p.head(start, std::move(list), out);
           })
      .def("route", &Program::route)
      .def("expert_linear",
           [](Program& p, int32_t x, std::vector<PyExpertStack> stacks, int32_t out) {
             std::vector<Program::ExpertStack> list;
             for (auto& [matrices, rounded] : stacks)
               list.push_back({{matrices.begin(), matrices.end()}, rounded});
             p.expert_linear(x, std::move(list), out);
           })
      .def("combine", &Program::combine)
      .def("add", &Program::add)
      .def("scale", &Program::scale)
      .def("softcap", &Program::softcap)
      .def("copy_rows", &Program::copy_rows)
      .def("set_profiling", &Program::set_profiling, nb::arg("on"))
      .def("profile",
           [](const Program& p) {
             std::vector<std::tuple<std::string, size_t, double, int32_t>> list;
             for (const Program::Timing& t : p.profile())
               list.emplace_back(t.name, t.weight_bytes, t.seconds, t.tiles);
             return list;
           })
      .def("run", &run, nb::arg("pool"), nb::arg("kv"), nb::arg("tokens"), nb::arg("positions"),
           nb::arg("row_offsets"), nb::arg("block_tables"), nb::arg("logit_rows"),
           nb::arg("argmax_rows"), nb::arg("hidden_rows"), nb::arg("outputs"), nb::arg("argmax"));
}
