// A weight matrix in the packed layout, owning its memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/types.h"

namespace farthing {

class Matrix {
 public:
  // Zeroed memory on huge pages. Throws std::invalid_argument for sizes the scheme cannot hold,
  // std::bad_alloc.
  Matrix(Scheme scheme, int32_t rows, int32_t cols);

  // Packs checkpoint bytes into rows first_row.. (their count follows from the size) and returns
  // the count. Threads may pack disjoint rows at once, in any order. Throws std::invalid_argument.
  int32_t pack(int64_t first_row, const uint8_t* source, size_t bytes);

  // Throws std::invalid_argument, with all numbers, if the rows do not exist.
  void check_rows(int64_t first_row, int64_t count) const;

  MatrixView view() const { return {scheme_, rows_, cols_, memory_.get(), row_block_bytes_}; }
  Scheme scheme() const { return scheme_; }
  int32_t rows() const { return rows_; }
  int32_t cols() const { return cols_; }
  int32_t row_blocks() const { return (rows_ + kLanes - 1) / kLanes; }
  size_t nbytes() const { return row_block_bytes_ * static_cast<size_t>(row_blocks()); }
  size_t source_row_bytes() const;  // of one row in the checkpoint

 private:
  Scheme scheme_;
  int32_t rows_;
  int32_t cols_;
  size_t row_block_bytes_;
  std::shared_ptr<uint8_t> memory_;
};

// Throws std::invalid_argument naming the schemes that exist.
Scheme parse_scheme(std::string_view name);

}  // namespace farthing
