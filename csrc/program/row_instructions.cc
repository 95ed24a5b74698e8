#include "program/row_instructions.h"

#include <cstring>
#include <utility>

namespace farthing {
namespace {

// Which row of a value with rows `from` row `row` of one with rows `to` is taken from.
int32_t source_row(const Step& step, RowKind from, RowKind to, int32_t row) {
  if (from == to) return row;
  return to == RowKind::logits ? step.head_row(row) : step.hidden_rows[row];
}

}  // namespace

int32_t RowInstruction::plan(const Step& step, int threads) {
  tiling_ = Tiling::balanced(step.rows(rows_), threads);
  return tiling_.tiles();
}

void RowInstruction::run(int32_t tile, const Step& step, uint8_t* scratch) const {
  const Range range = tiling_.at(tile);
  for (int32_t row = range.begin; row < range.end; ++row)
    run_row(row, step, reinterpret_cast<float*>(scratch));
}

void RowSink::finish(int32_t row, const float* x) const {
  for (Int8Buffer* buffer : rounded)
    linear->quantize_row(x, buffer->cols, buffer->group, buffer->codes(row), buffer->scales(row),
                         buffer->sums(row));
}

EmbedInstruction::EmbedInstruction(const LinearKernels& kernels,
                                   std::shared_ptr<const Matrix> table, FloatBuffer* out)
    : RowInstruction(out->rows), kernels_(kernels), table_(std::move(table)), out_(out) {}

void EmbedInstruction::run_row(int32_t row, const Step& step, float*) const {
  kernels_.dequantize_row(table_->view(), step.tokens[row], out_->row(row));
}

RmsNormInstruction::RmsNormInstruction(const ElementwiseKernels& kernels, const FloatBuffer* x,
                                       std::vector<float> weight, float eps, RowSink out)
    : RowInstruction(out.rows()),
      kernels_(kernels),
      x_(x),
      weight_(std::move(weight)),
      eps_(eps),
      out_(std::move(out)) {}

void RmsNormInstruction::run_row(int32_t row, const Step& step, float* scratch) const {
  float* y = out_.target(row, scratch);
  kernels_.rms_norm_row(x_->row(source_row(step, x_->rows, out_.rows(), row)), weight_.data(), eps_, x_->width, y);
  out_.finish(row, y);
}

GatedInstruction::GatedInstruction(const ElementwiseKernels& kernels, const FloatBuffer* x,
                                   Activation activation, RowSink out)
    : RowInstruction(x->rows),
      kernels_(kernels),
      x_(x),
      activation_(activation),
      out_(std::move(out)) {}

void GatedInstruction::run_row(int32_t row, const Step&, float* scratch) const {
  float* y = out_.target(row, scratch);
  kernels_.gated_row(x_->row(row), activation_, out_.width(), y);
  out_.finish(row, y);
}

QuantizeInstruction::QuantizeInstruction(const FloatBuffer* x, RowSink out)
    : RowInstruction(x->rows), x_(x), out_(std::move(out)) {}

void QuantizeInstruction::run_row(int32_t row, const Step&, float*) const {
  out_.finish(row, x_->row(row));
}

AddInstruction::AddInstruction(const ElementwiseKernels& kernels, const FloatBuffer* a,
                               const FloatBuffer* b, FloatBuffer* out)
    : RowInstruction(out->rows), kernels_(kernels), a_(a), b_(b), out_(out) {}

void AddInstruction::run_row(int32_t row, const Step&, float*) const {
  kernels_.add_row(a_->row(row), b_->row(row), out_->width, out_->row(row));
}

ScaleInstruction::ScaleInstruction(const ElementwiseKernels& kernels, const FloatBuffer* x,
                                   float factor, FloatBuffer* out)
    : RowInstruction(out->rows), kernels_(kernels), x_(x), factor_(factor), out_(out) {}

void ScaleInstruction::run_row(int32_t row, const Step&, float*) const {
  kernels_.scale_row(x_->row(row), factor_, out_->width, out_->row(row));
}

SoftcapInstruction::SoftcapInstruction(const ElementwiseKernels& kernels, const FloatBuffer* x,
                                       float cap, FloatBuffer* out)
    : RowInstruction(out->rows), kernels_(kernels), x_(x), cap_(cap), out_(out) {}

void SoftcapInstruction::run_row(int32_t row, const Step&, float*) const {
  kernels_.softcap_row(x_->row(row), cap_, out_->width, out_->row(row));
}

CopyRowsInstruction::CopyRowsInstruction(const FloatBuffer* x, FloatBuffer* out)
    : RowInstruction(out->rows), x_(x), out_(out) {}

void CopyRowsInstruction::run_row(int32_t row, const Step& step, float*) const {
  const int32_t source = source_row(step, x_->rows, out_->rows, row);
  std::memcpy(out_->row(row), x_->row(source), sizeof(float) * static_cast<size_t>(out_->width));
}

}  // namespace farthing
