// A linear op over several stacked weight matrices that share their input.
#pragma once

#include <vector>

#include "program/linear_tiles.h"

namespace farthing {

class LinearInstruction : public Instruction {
 public:
  LinearInstruction(const LinearKernels& kernels, const FloatBuffer* x, RowKind rows,
                    std::vector<LinearSegment> segments, const FloatBuffer* add, FloatBuffer* out);
  int32_t plan(const Step& step, int threads) override;
  void run(int32_t tile, const Step& step, uint8_t* scratch) const override;
  const char* name() const override { return "linear"; }
  size_t weight_bytes() const override;
  const uint8_t* tile_weights(int32_t tile) const override;

 private:
  struct Tile {
    int32_t segment, first_output;
    LinearTile part;
  };

  const LinearKernels& kernels_;
  const FloatBuffer* x_;  // null when every segment reads int8
  RowKind rows_;
  std::vector<LinearSegment> segments_;
  const FloatBuffer* add_;
  FloatBuffer* out_;
  std::vector<Tile> tiles_;
  int32_t planned_rows_ = -1;
  int planned_threads_ = 0;
};

}  // namespace farthing
