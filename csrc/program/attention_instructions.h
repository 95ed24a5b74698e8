// Rope table, rope with the KV store, and paged attention.
#pragma once

#include <atomic>
#include <utility>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/elementwise/elementwise.h"
#include "program/instruction.h"
#include "program/row_instructions.h"

namespace farthing {

// cos and sin of every token's position, computed once a pass and shared by the layers.
struct RopeTable {
  std::vector<double> inverse_frequencies;  // (half_dim)
  double magnitude;
  FloatBuffer* cos;  // (T, half_dim)
  FloatBuffer* sin;
  int32_t half_dim() const { return static_cast<int32_t>(inverse_frequencies.size()); }
};

class RopeTableInstruction : public RowInstruction {
 public:
  RopeTableInstruction(const AttentionKernels& kernels, const RopeTable* table)
      : RowInstruction(RowKind::tokens), kernels_(kernels), table_(table) {}
  const char* name() const override { return "rope"; }

 protected:
  void run_row(int32_t row, const Step& step, float* scratch) const override;

 private:
  const AttentionKernels& kernels_;
  const RopeTable* table_;
};

// Norm of query or key vectors before rope. `weight` is as wide as a head (each head by itself) or
// as all heads together; empty: no norm.
struct HeadNorm {
  std::vector<float> weight;
  float eps = 0.0f;
};

// Norms, rotates (unless `rope` is null) q and k in place and stores k and v. All of it precedes
// the reading (a barrier between).
class StoreKvInstruction : public Instruction {
 public:
  StoreKvInstruction(const AttentionKernels& kernels, const ElementwiseKernels& elementwise,
                     const AttentionShape& shape, int32_t layer, HeadNorm q_norm, HeadNorm k_norm,
                     const RopeTable* rope, FloatBuffer* qkv)
      : kernels_(kernels),
        elementwise_(elementwise),
        shape_(shape),
        layer_(layer),
        q_norm_(std::move(q_norm)),
        k_norm_(std::move(k_norm)),
        rope_(rope),
        qkv_(qkv) {}
  int32_t plan(const Step& step, int threads) override;
  void run(int32_t tile, const Step& step, uint8_t* scratch) const override;
  const char* name() const override { return "store_kv"; }

 private:
  void normalize(const HeadNorm& norm, float* heads, int32_t num_heads) const;

  const AttentionKernels& kernels_;
  const ElementwiseKernels& elementwise_;
  AttentionShape shape_;
  int32_t layer_;
  HeadNorm q_norm_, k_norm_;
  const RopeTable* rope_;
  FloatBuffer* qkv_;
  std::vector<int32_t> sequence_of_row_;
  Tiling tiling_;
};

// Where threads leave the parts of tiles that they share: as much for a context of any length, and
// touched only as far as there is something to share. One for all layers of a program.
struct AttentionParts {
  static constexpr size_t kFloats = size_t{2} << 20;
  AlignedBuffer memory;
};

// Tiles are rows of a sequence against one kv head. Where there are too few of them for the
// threads, those with long contexts are cut into their spans, and who finishes a tile's last part
// merges them all: in the order of the contract, whoever computed which. What a tile has made is
// rounded at once where nothing is filled up.
class AttendInstruction : public Instruction {
 public:
  AttendInstruction(const AttentionKernels& kernels, const AttentionShape& shape, int32_t layer,
                    AttentionParts* parts, const FloatBuffer* qkv, RowSink out)
      : kernels_(kernels),
        shape_(shape),
        layer_(layer),
        parts_(parts),
        qkv_(qkv),
        out_(std::move(out)) {}
  int32_t plan(const Step& step, int threads) override;
  void run(int32_t tile, const Step& step, uint8_t* scratch) const override;
  size_t scratch_bytes() const override { return attention_scratch_bytes(shape_); }
  const char* name() const override { return "attend"; }

 private:
  struct SharedTile {
    size_t offset, stride;  // of its parts, in floats
    int32_t num_parts;
  };
  struct Work {
    AttentionTile tile;
    SpanRange spans;
    int32_t shared, part;  // index of a shared tile and which part this is; shared -1: all of it
    int64_t cost;          // keys times rows
  };

  void share(const Work& whole, size_t& used);
  void round(const AttentionTile& tile) const;

  const AttentionKernels& kernels_;
  AttentionShape shape_;
  int32_t layer_;
  AttentionParts* parts_;
  const FloatBuffer* qkv_;
  RowSink out_;
  std::vector<Work> tiles_, work_;
  std::vector<SharedTile> shared_;
  mutable std::vector<std::atomic<int32_t>> unfinished_;  // parts of each shared tile
};

}  // namespace farthing
