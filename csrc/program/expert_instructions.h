// Mixture of experts: routing rows, grouping them by expert, the experts' matrices, the sum.
//
// The rows of a pass are copied once for each of their experts and grouped: routed rows, those of
// expert 0 first, within an expert in the order of the pass. All that is computed of a routed row
// is computed of it alone, so who shares its expert never shows in its bits.
#pragma once

#include <memory>
#include <vector>

#include "core/matrix.h"
#include "kernels/experts/experts.h"
#include "kernels/linear/linear.h"
#include "program/instruction.h"
#include "program/row_instructions.h"

namespace farthing {

// Which rows of a pass each expert takes; the layers use it one after the other.
struct Routing {
  // Routed rows that a tile takes together; the weights of an expert with no more are read once.
  static constexpr int32_t kRowsPerTile = 128;

  struct Tile {
    int32_t expert;
    Range rows;  // routed rows
  };

  // Throws std::bad_alloc. Nothing is allocated during a pass.
  Routing(int32_t num_experts, int32_t experts_per_token, int32_t max_rows);
  // Fills everything else from `chosen` of the first `tokens` rows.
  void group(int32_t tokens);

  int32_t num_experts;
  int32_t experts_per_token;
  std::vector<int32_t> chosen;      // (T, experts_per_token), ascending
  std::vector<int32_t> token;       // (T * experts_per_token): the row a routed row is a copy of
  std::vector<int32_t> routed_row;  // (T, experts_per_token): where each copy is
  std::vector<Tile> tiles;

 private:
  std::vector<int32_t> next_;  // (num_experts)
};

// Router logits to chosen experts and their weights, row by row.
class RouteInstruction : public RowInstruction {
 public:
  RouteInstruction(const ExpertKernels& kernels, const FloatBuffer* logits, bool normalize,
                   Routing* routing, FloatBuffer* weights)
      : RowInstruction(RowKind::tokens),
        kernels_(kernels),
        logits_(logits),
        normalize_(normalize),
        routing_(routing),
        weights_(weights) {}
  const char* name() const override { return "route"; }

 protected:
  void run_row(int32_t row, const Step& step, float* scratch) const override;

 private:
  const ExpertKernels& kernels_;
  const FloatBuffer* logits_;
  bool normalize_;
  Routing* routing_;
  FloatBuffer* weights_;
};

// Groups the rows by expert, for the instructions after it. One short tile.
class GroupRowsInstruction : public Instruction {
 public:
  explicit GroupRowsInstruction(Routing* routing) : routing_(routing) {}
  int32_t plan(const Step&, int) override { return 1; }
  void run(int32_t tile, const Step& step, uint8_t* scratch) const override;
  const char* name() const override { return "group_rows"; }

 private:
  Routing* routing_;
};

// A matrix of every expert, all of one size. `rounded` is the input in the form their schemes need,
// or null for the float schemes.
struct ExpertSegment {
  std::vector<std::shared_ptr<const Matrix>> matrices;  // (num_experts)
  Int8Buffer* rounded;
};

// Routed rows times their own expert's matrices, side by side. The input has the rows of the pass,
// which are gathered, or routed rows.
class ExpertLinearInstruction : public Instruction {
 public:
  ExpertLinearInstruction(const LinearKernels& kernels, const FloatBuffer* x, RowKind input_rows,
                          std::vector<ExpertSegment> segments, const Routing* routing,
                          FloatBuffer* out);
  int32_t plan(const Step& step, int threads) override;
  int32_t tiles(int32_t planned) const override;
  void run(int32_t tile, const Step& step, uint8_t* scratch) const override;
  size_t scratch_bytes() const override;
  const char* name() const override { return "expert_linear"; }

 private:
  int32_t block_tiles() const;
  Activations activations(const ExpertSegment& segment, const Range& rows, uint8_t* scratch) const;
  Activations gather(const ExpertSegment& segment, const Range& rows, uint8_t* scratch) const;

  const LinearKernels& kernels_;
  const FloatBuffer* x_;  // null when every segment reads int8
  RowKind input_rows_;
  std::vector<ExpertSegment> segments_;
  const Routing* routing_;
  FloatBuffer* out_;
  int32_t blocks_ = 0;  // row blocks of an expert's matrices together
  int threads_ = 1;
};

// The weighted sum of a row's experts, in ascending id.
class CombineInstruction : public RowInstruction {
 public:
  CombineInstruction(const ExpertKernels& kernels, const FloatBuffer* x, const FloatBuffer* weights,
                     const Routing* routing, const FloatBuffer* add, FloatBuffer* out)
      : RowInstruction(RowKind::tokens),
        kernels_(kernels),
        x_(x),
        weights_(weights),
        routing_(routing),
        add_(add),
        out_(out) {}
  const char* name() const override { return "combine"; }

 protected:
  void run_row(int32_t row, const Step& step, float* scratch) const override;

 private:
  const ExpertKernels& kernels_;
  const FloatBuffer* x_;
  const FloatBuffer* weights_;
  const Routing* routing_;
  const FloatBuffer* add_;
  FloatBuffer* out_;
};

}  // namespace farthing
