// Rope table, rope with the KV store, and paged attention.
#pragma once

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

class AttendInstruction : public Instruction {
 public:
  AttendInstruction(const AttentionKernels& kernels, const AttentionShape& shape, int32_t layer,
                    const FloatBuffer* qkv, FloatBuffer* out)
      : kernels_(kernels), shape_(shape), layer_(layer), qkv_(qkv), out_(out) {}
  int32_t plan(const Step& step, int threads) override;
  void run(int32_t tile, const Step& step, uint8_t* scratch) const override;
  size_t scratch_bytes() const override { return attention_scratch_bytes(shape_); }
  const char* name() const override { return "attend"; }

 private:
  const AttentionKernels& kernels_;
  AttentionShape shape_;
  int32_t layer_;
  const FloatBuffer* qkv_;
  FloatBuffer* out_;
  std::vector<AttentionTile> tiles_;
};

}  // namespace farthing
