// Gate and up matrices and what joins them: the product's rows are gated, and rounded, tile by tile,
// and never written as a whole.
#pragma once

#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "program/linear_tiles.h"
#include "program/row_instructions.h"

namespace farthing {

class GatedLinearInstruction : public Instruction {
 public:
  // gate and up have as many rows as `out` is wide.
  GatedLinearInstruction(const LinearKernels& linear, const ElementwiseKernels& elementwise,
                         const FloatBuffer* x, LinearSegment gate, LinearSegment up,
                         Activation activation, RowSink out);
  int32_t plan(const Step& step, int threads) override;
  void run(int32_t tile, const Step& step, uint8_t* scratch) const override;
  size_t scratch_bytes() const override;
  const char* name() const override { return "gated_linear"; }
  size_t weight_bytes() const override { return gate_.matrix->nbytes() + up_.matrix->nbytes(); }

 private:
  const LinearKernels& linear_;
  const ElementwiseKernels& elementwise_;
  const FloatBuffer* x_;  // null when both read int8
  LinearSegment gate_, up_;
  Activation activation_;
  RowSink out_;
  int32_t unit_;       // row blocks that fill whole groups of what `out` rounds to
  int32_t most_rows_;  // of a tile
  std::vector<LinearTile> tiles_;
  int32_t planned_rows_ = -1;
  int planned_threads_ = 0;
};

}  // namespace farthing
