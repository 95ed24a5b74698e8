#include "kernels/attention/attention.h"

#include "bindings/isa_argument.h"
#include "bindings/numpy_arrays.h"
#include "bindings/registry.h"
#include "core/kv_pool.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace nb = nanobind;
using namespace farthing;

namespace {

// Workspace that shows misuse: NaN before the first call, and a margin that must stay as it is.
class Scratch {
 public:
  explicit Scratch(size_t bytes)
      : bytes_(bytes),
        data_(static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + kMargin + 63) / 64 * 64)),
              std::free) {
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 0xff, bytes + kMargin);
  }
  void* get() const { return data_.get(); }
  bool intact() const {
    for (size_t i = 0; i < kMargin; ++i)
      if (data_.get()[bytes_ + i] != 0xff) return false;
    return true;
  }

 private:
  static constexpr size_t kMargin = 256;
  size_t bytes_;
  std::unique_ptr<uint8_t, void (*)(void*)> data_;
};

// A KV pool in a NumPy uint8 buffer, with the kernels of one instruction set.
class TestPool {
 public:
  TestPool(const std::string& isa, const std::string& dtype, int32_t layers, int32_t kv_heads,
           int32_t head_dim, InOutArray<uint8_t, 1> bytes)
      : kernels_(attention_kernels(isa_argument(isa))),
        layout_(kv_layout(dtype, layers, kv_heads, head_dim)),
        bytes_(std::move(bytes)),
        blocks_(static_cast<int64_t>(bytes_.shape(0) / layout_.block_bytes())) {}

  int64_t blocks() const { return blocks_; }

  // k, v: (tokens, kv_heads, head_dim); block, slot: of each token.
  void store(int32_t layer, InArray<int32_t, 1> block, InArray<int32_t, 1> slot,
             InArray<float, 3> k, InArray<float, 3> v) {
    check_layer(layer);
    check_heads(k);
    check_heads(v);
    require(k.shape(0) == v.shape(0) && k.shape(0) == block.shape(0) &&
                k.shape(0) == slot.shape(0),
            "k, v, block and slot must have one entry per token");
    const size_t width = k.shape(1) * k.shape(2);
    for (size_t t = 0; t < k.shape(0); ++t) {
      require(block(t) >= 0 && block(t) < blocks_ && slot(t) >= 0 && slot(t) < kBlockTokens,
              "block or slot outside the pool");
      kernels_.store_kv(layout_, bytes_.data(), layer, block(t), slot(t), k.data() + t * width,
                        v.data() + t * width);
    }
  }

  // q: (tokens, heads, head_dim) of positions position, position + 1, ...; tiles: rows per call.
  // parts: into how many, at most, each tile is cut; 0 for the undivided kernel.
  OutArray<float> attend(int32_t layer, InArray<int32_t, 1> block_table, int32_t position,
                         InArray<float, 3> q, float scale, float softcap, int32_t window,
                         const std::vector<int32_t>& tiles, int32_t parts) {
    check_layer(layer);
    const int32_t tokens = extent_of(q.shape(0));
    const AttentionShape shape = {extent_of(q.shape(1)), layout_.num_kv_heads,
                                  layout_.head_dim, scale, softcap, window};
    require(q.shape(2) == static_cast<size_t>(shape.head_dim) &&
                shape.num_heads % shape.num_kv_heads == 0,
            "q must be (tokens, heads, head_dim), heads a multiple of kv_heads");
    require(position >= 0 &&
                (static_cast<size_t>(position) + q.shape(0) + kBlockTokens - 1) / kBlockTokens <=
                    block_table.shape(0),
            "block_table is too short");
    require(position <= INT32_MAX - tokens, "positions must be below 2^31");
    for (size_t i = 0; i < block_table.shape(0); ++i)
      require(block_table(i) >= 0 && block_table(i) < blocks_, "block outside the pool");
    const size_t stride = q.shape(1) * q.shape(2);
    OutArray<float> out = new_array<float>({q.shape(0), q.shape(1), q.shape(2)});
    const Scratch scratch(attention_scratch_bytes(shape));
    int32_t row = 0;
    for (int32_t rows : tiles) {
      require(rows > 0 && rows <= tokens - row, "tiles must add up to the tokens");
      for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
        const AttentionTile tile = {block_table.data(), position + row, row, rows, head};
        if (parts > 0)
          attend_in_parts(shape, layer, tile, parts, q.data(), out.data(), stride, scratch.get());
        else
          kernels_.attend(shape, layout_, bytes_.data(), layer, tile, q.data(), stride,
                          out.data(), stride, scratch.get());
      }
      row += rows;
    }
    require(row == tokens, "tiles must add up to the tokens");
    if (!scratch.intact()) throw std::runtime_error("attend wrote past its scratch");
    return out;
  }

 private:
  // The last parts first; those past `most` go to the first.
  void attend_in_parts(const AttentionShape& shape, int32_t layer, const AttentionTile& tile,
                       int32_t most, const float* q, float* out, size_t stride, void* scratch) {
    const SpanRange spans = visible_spans(tile, shape.window);
    const int32_t count = std::min(most, spans.count());
    const size_t floats = attention_part_floats(shape, tile.num_rows);
    const Scratch memory(static_cast<size_t>(count) * floats * sizeof(float));
    float* parts = static_cast<float*>(memory.get());
    for (int32_t part = count - 1; part >= 0; --part) {
      const int32_t last = spans.end - count + part;
      kernels_.attend_spans(shape, layout_, bytes_.data(), layer, tile,
                            {part == 0 ? spans.begin : last, last + 1}, q, stride,
                            parts + static_cast<size_t>(part) * floats, scratch);
    }
    kernels_.merge_parts(shape, tile, parts, count, floats, out, stride);
    if (!memory.intact()) throw std::runtime_error("attend_spans wrote past its part");
  }
  void check_layer(int32_t layer) const {
    require(layer >= 0 && layer < layout_.num_layers, "no such layer");
  }
  void check_heads(const InArray<float, 3>& x) const {
    require(x.shape(1) == static_cast<size_t>(layout_.num_kv_heads) &&
                x.shape(2) == static_cast<size_t>(layout_.head_dim),
            "k and v must be (tokens, kv_heads, head_dim)");
  }

  const AttentionKernels& kernels_;
  KvLayout layout_;
  InOutArray<uint8_t, 1> bytes_;
  int64_t blocks_;
};

}  // namespace

FARTHING_BIND(attention) {
  m.def(
      "rope_inverse_frequencies",
      [](double theta, int32_t dim) {
        require(theta > 0 && dim > 0 && dim % 2 == 0, "theta must be positive, dim even");
        OutArray<double> out = new_array<double>({static_cast<size_t>(dim / 2)});
        rope_inverse_frequencies(theta, dim, out.data());
        return out;
      },
      nb::arg("theta"), nb::arg("dim"), ComputeGuard(),
      "theta^(-2i/dim) for i < dim/2, float64, the same bits on every machine.");
  m.def(
      "rope_table",
      [](const std::string& isa, InArray<int32_t, 1> positions, InArray<double, 1> inv_freq,
         double magnitude) {
        OutArray<float> cos = new_array<float>({positions.shape(0), inv_freq.shape(0)});
        OutArray<float> sin = new_array<float>({positions.shape(0), inv_freq.shape(0)});
        attention_kernels(isa_argument(isa))
            .rope_table(positions.data(), extent_of(positions.shape(0)), inv_freq.data(),
                        extent_of(inv_freq.shape(0)), magnitude, cos.data(), sin.data());
        return nb::make_tuple(cos, sin);
      },
      nb::arg("isa"), nb::arg("positions"), nb::arg("inv_freq"), nb::arg("magnitude") = 1.0,
      ComputeGuard(), "cos and sin (positions, inv_freq), float32.");
  m.def(
      "rope_rows",
      [](const std::string& isa, InOutArray<float, 3> heads, InArray<float, 2> cos,
         InArray<float, 2> sin) {
        require(cos.shape(0) == heads.shape(0) && sin.shape(0) == heads.shape(0) &&
                    cos.shape(1) == sin.shape(1) && 2 * cos.shape(1) <= heads.shape(2),
                "cos and sin must be (tokens, half_dim), 2 * half_dim at most head_dim");
        const AttentionKernels& k = attention_kernels(isa_argument(isa));
        for (size_t t = 0; t < heads.shape(0); ++t)
          k.rope_row(heads.data() + t * heads.shape(1) * heads.shape(2),
                     extent_of(heads.shape(1)), extent_of(heads.shape(2)),
                     cos.data() + t * cos.shape(1), sin.data() + t * cos.shape(1),
                     extent_of(cos.shape(1)));
      },
      nb::arg("isa"), nb::arg("heads"), nb::arg("cos"), nb::arg("sin"), ComputeGuard(),
      "Rotates heads (tokens, heads, head_dim) in place.");
  m.def(
      "attention_scratch_bytes",
      [](int32_t head_dim) {
        return attention_scratch_bytes({1, 1, head_dim, 1.0f, 0.0f, 0});
      },
      nb::arg("head_dim"));
  nb::class_<TestPool>(m, "TestPool", "The attention kernels over a KV pool held in NumPy bytes.")
      .def(nb::init<const std::string&, const std::string&, int32_t, int32_t, int32_t,
                    InOutArray<uint8_t, 1>>(),
           nb::arg("isa"), nb::arg("dtype"), nb::arg("layers"), nb::arg("kv_heads"),
           nb::arg("head_dim"), nb::arg("pool"))
      .def_prop_ro("blocks", &TestPool::blocks)
      .def("store", &TestPool::store, nb::arg("layer"), nb::arg("block"), nb::arg("slot"),
           nb::arg("k"), nb::arg("v"), ComputeGuard())
      .def("attend", &TestPool::attend, nb::arg("layer"), nb::arg("block_table"),
           nb::arg("position"), nb::arg("q"), nb::arg("scale"), nb::arg("softcap"),
           nb::arg("window"), nb::arg("tiles"), nb::arg("parts") = 0, ComputeGuard());
}
