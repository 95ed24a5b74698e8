#include "program/row_instructions.h"

#include <algorithm>
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

// No part of a row but its last is filled up.
static_assert(kMaxActivationGroup % kSpanCols == 0);

int32_t ColumnInstruction::plan(const Step& step, int threads) {
  const int32_t rows = step.rows(rows_);
  row_tiling_ = Tiling::balanced(rows, threads);
  const int32_t units = (width_ + kMaxActivationGroup - 1) / kMaxActivationGroup;
  const int32_t parts = rows == 0 ? 1 : std::clamp(2 * threads / rows, 1, units);
  column_tiling_ = {width_, (units + parts - 1) / parts * kMaxActivationGroup};
  return row_tiling_.tiles() * column_tiling_.tiles();
}

void ColumnInstruction::run(int32_t tile, const Step&, uint8_t* scratch) const {
  const Range rows = row_tiling_.at(tile / column_tiling_.tiles());
  const Range columns = column_tiling_.at(tile % column_tiling_.tiles());
  for (int32_t row = rows.begin; row < rows.end; ++row)
    run_columns(row, columns, reinterpret_cast<float*>(scratch));
}

void RowSink::finish(int32_t row, Range columns, const float* x) const {
  for (Int8Buffer* buffer : rounded)
    linear->quantize_row(x, columns.end - columns.begin, buffer->group,
                         buffer->codes(row) + columns.begin,
                         buffer->scales(row) + columns.begin / buffer->group,
                         buffer->sums(row) + columns.begin / kSumRun);
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
    : ColumnInstruction(x->rows, x->width / 2),
      kernels_(kernels),
      x_(x),
      activation_(activation),
      out_(std::move(out)) {}

void GatedInstruction::run_columns(int32_t row, Range columns, float* scratch) const {
  const float* gate = x_->row(row) + columns.begin;
  float* y = out_.target(row, scratch) + columns.begin;
  kernels_.gated_row(gate, gate + out_.width(), activation_, columns.end - columns.begin, y);
  out_.finish(row, columns, y);
}

QuantizeInstruction::QuantizeInstruction(const FloatBuffer* x, RowSink out)
    : ColumnInstruction(x->rows, x->width), x_(x), out_(std::move(out)) {}

void QuantizeInstruction::run_columns(int32_t row, Range columns, float*) const {
  out_.finish(row, columns, x_->row(row) + columns.begin);
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
