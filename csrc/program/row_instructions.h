// Instructions that work row by row: embedding, norms, gates, sums, gathers and rounding to int8.
#pragma once

#include <memory>
#include <vector>

#include "core/matrix.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"
#include "program/instruction.h"

namespace farthing {

// Base: a tile is a run of rows of `rows`.
class RowInstruction : public Instruction {
 public:
  explicit RowInstruction(RowKind rows) : rows_(rows) {}
  int32_t plan(const Step& step, int threads) override;
  void run(int32_t tile, const Step& step, uint8_t* scratch) const override;

 protected:
  virtual void run_row(int32_t row, const Step& step, float* scratch) const = 0;

 private:
  RowKind rows_;
  Tiling tiling_;
};

// Base: a tile is a run of rows, or where there are few of them some columns of one.
class ColumnInstruction : public Instruction {
 public:
  ColumnInstruction(RowKind rows, int32_t width) : rows_(rows), width_(width) {}
  int32_t plan(const Step& step, int threads) override;
  void run(int32_t tile, const Step& step, uint8_t* scratch) const override;

 protected:
  virtual void run_columns(int32_t row, Range columns, float* scratch) const = 0;

 private:
  RowKind rows_;
  int32_t width_;
  Tiling row_tiling_, column_tiling_;
};

// Where a row goes: to a float buffer, to int8 activations, or to both.
struct RowSink {
  FloatBuffer* values = nullptr;
  std::vector<Int8Buffer*> rounded;
  const LinearKernels* linear = nullptr;

  RowKind rows() const { return values ? values->rows : rounded.front()->rows; }
  int32_t width() const { return values ? values->width : rounded.front()->cols; }
  float* target(int32_t row, float* scratch) const { return values ? values->row(row) : scratch; }
  // x: the row, or these columns of it, which begin with a group of every form it is rounded to.
  // Unless the row ends with them they are padded_cols of it: what follows is not to be touched.
  void finish(int32_t row, const float* x) const { finish(row, {0, width()}, x); }
  void finish(int32_t row, Range columns, const float* x) const;
  size_t scratch_bytes() const { return values ? 0 : sizeof(float) * static_cast<size_t>(width()); }
};

class EmbedInstruction : public RowInstruction {
 public:
  EmbedInstruction(const LinearKernels& kernels, std::shared_ptr<const Matrix> table,
                   FloatBuffer* out);
  const char* name() const override { return "embed"; }

 protected:
  void run_row(int32_t row, const Step& step, float* scratch) const override;

 private:
  const LinearKernels& kernels_;
  std::shared_ptr<const Matrix> table_;
  FloatBuffer* out_;
};

// The norm of every row of x, or, into other rows than x has, of those the step lists.
class RmsNormInstruction : public RowInstruction {
 public:
  RmsNormInstruction(const ElementwiseKernels& kernels, const FloatBuffer* x,
                     std::vector<float> weight, float eps, RowSink out);
  size_t scratch_bytes() const override { return out_.scratch_bytes(); }
  const char* name() const override { return "rms_norm"; }

 protected:
  void run_row(int32_t row, const Step& step, float* scratch) const override;

 private:
  const ElementwiseKernels& kernels_;
  const FloatBuffer* x_;
  std::vector<float> weight_;
  float eps_;
  RowSink out_;
};

class GatedInstruction : public ColumnInstruction {
 public:
  GatedInstruction(const ElementwiseKernels& kernels, const FloatBuffer* x, Activation activation,
                   RowSink out);
  size_t scratch_bytes() const override { return out_.scratch_bytes(); }
  const char* name() const override { return "gated"; }

 protected:
  void run_columns(int32_t row, Range columns, float* scratch) const override;

 private:
  const ElementwiseKernels& kernels_;
  const FloatBuffer* x_;
  Activation activation_;
  RowSink out_;
};

// Rounds a value that another instruction produced.
class QuantizeInstruction : public ColumnInstruction {
 public:
  QuantizeInstruction(const FloatBuffer* x, RowSink out);
  const char* name() const override { return "quantize"; }

 protected:
  void run_columns(int32_t row, Range columns, float* scratch) const override;

 private:
  const FloatBuffer* x_;
  RowSink out_;
};

class AddInstruction : public RowInstruction {
 public:
  AddInstruction(const ElementwiseKernels& kernels, const FloatBuffer* a, const FloatBuffer* b,
                 FloatBuffer* out);
  const char* name() const override { return "add"; }

 protected:
  void run_row(int32_t row, const Step& step, float* scratch) const override;

 private:
  const ElementwiseKernels& kernels_;
  const FloatBuffer *a_, *b_;
  FloatBuffer* out_;
};

class ScaleInstruction : public RowInstruction {
 public:
  ScaleInstruction(const ElementwiseKernels& kernels, const FloatBuffer* x, float factor,
                   FloatBuffer* out);
  const char* name() const override { return "scale"; }

 protected:
  void run_row(int32_t row, const Step& step, float* scratch) const override;

 private:
  const ElementwiseKernels& kernels_;
  const FloatBuffer* x_;
  float factor_;
  FloatBuffer* out_;
};

class SoftcapInstruction : public RowInstruction {
 public:
  SoftcapInstruction(const ElementwiseKernels& kernels, const FloatBuffer* x, float cap,
                     FloatBuffer* out);
  const char* name() const override { return "softcap"; }

 protected:
  void run_row(int32_t row, const Step& step, float* scratch) const override;

 private:
  const ElementwiseKernels& kernels_;
  const FloatBuffer* x_;
  float cap_;
  FloatBuffer* out_;
};

// Copies rows: all of them (taps), or those listed in the step (logit_rows, hidden_rows).
class CopyRowsInstruction : public RowInstruction {
 public:
  CopyRowsInstruction(const FloatBuffer* x, FloatBuffer* out);
  const char* name() const override { return "copy_rows"; }

 protected:
  void run_row(int32_t row, const Step& step, float* scratch) const override;

 private:
  const FloatBuffer* x_;
  FloatBuffer* out_;
};

}  // namespace farthing
