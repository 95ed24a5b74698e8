// The language-model head: logits of the rows whose logits are wanted, and of the others only their
// greedy token, without ever writing their logits to memory.
#pragma once

#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "kernels/sampling/sampling.h"
#include "program/linear_tiles.h"

namespace farthing {

// One op of the head, from the logits so far, which do not exist before the first, to the next.
struct HeadStage {
  enum class Kind { linear, scale, softcap };
  Kind kind;
  LinearSegment segment;         // linear: its product, plus the logits so far
  const FloatBuffer* x = nullptr;  // linear: null when the segment reads int8
  float number = 0.0f;           // scale: the factor; softcap: the cap
};

class HeadInstruction : public Instruction {
 public:
  // start: the logits before the first stage, or null when that makes them.
  HeadInstruction(const LinearKernels& linear, const ElementwiseKernels& elementwise,
                  const SamplingKernels& sampling, const FloatBuffer* start,
                  std::vector<HeadStage> stages, FloatBuffer* out);
  int32_t plan(const Step& step, int threads) override;
  void run(int32_t tile, const Step& step, uint8_t* scratch) const override;
  size_t scratch_bytes() const override;
  const char* name() const override { return "head"; }
  size_t weight_bytes() const override;
  const uint8_t* tile_weights(int32_t tile) const override;

  // The greedy token of a row that asked for no more; when all tiles have run.
  int32_t token(int32_t row) const;

 private:
  void compute(const LinearTile& part, float* out, size_t stride) const;
  int32_t vocab() const { return out_->width; }

  const LinearKernels& linear_;
  const ElementwiseKernels& elementwise_;
  const SamplingKernels& sampling_;
  const FloatBuffer* start_;
  std::vector<HeadStage> stages_;
  FloatBuffer* out_;
  std::vector<LinearTile> tiles_;
  int32_t tile_rows_ = 0;
  // (tiles, tile_rows_): each entry belongs to the thread that runs its tile.
  mutable std::vector<RowBest> bests_;
};

// Hands out the tokens that the head found.
class PickInstruction : public Instruction {
 public:
  explicit PickInstruction(const HeadInstruction* head) : head_(head) {}
  int32_t plan(const Step& step, int) override { return step.num_argmax_rows > 0 ? 1 : 0; }
  void run(int32_t tile, const Step& step, uint8_t* scratch) const override;
  const char* name() const override { return "pick"; }

 private:
  const HeadInstruction* head_;
};

}  // namespace farthing
