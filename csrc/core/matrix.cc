#include "core/matrix.h"

#include <stdexcept>

#include "core/weight_arena.h"
#include "kernels/linear/layout.h"
#include "kernels/linear/linear.h"

namespace farthing {
Matrix::Matrix(Scheme scheme, int32_t rows, int32_t cols)
    : scheme_(scheme), rows_(rows), cols_(cols), row_block_bytes_(0) {
  const SchemeInfo& info = scheme_info(scheme);
  if (rows <= 0 || cols <= 0)
    throw std::invalid_argument("a matrix needs rows and columns, got (" + std::to_string(rows) +
                                ", " + std::to_string(cols) + ")");
  if (cols % info.block_cols != 0)
    throw std::invalid_argument(std::string(info.name) + " needs a multiple of " +
                                std::to_string(info.block_cols) + " columns, got " +
                                std::to_string(cols));
  row_block_bytes_ = farthing::row_block_bytes(scheme, cols);
  memory_ = allocate_weights(nbytes());
}

size_t Matrix::source_row_bytes() const {
  const SchemeInfo& info = scheme_info(scheme_);
  return static_cast<size_t>(cols_ / info.block_cols) * static_cast<size_t>(info.block_bytes);
}

void Matrix::check_rows(int64_t first_row, int64_t count) const {
  if (first_row < 0 || count < 0 || first_row > rows_ || count > rows_ - first_row)
    throw std::invalid_argument("rows " + std::to_string(first_row) + " to " +
                                std::to_string(first_row + count) + " of a matrix of " +
                                std::to_string(rows_) + " rows");
}

int32_t Matrix::pack(int64_t first_row, const uint8_t* source, size_t bytes) {
  const size_t row_bytes = source_row_bytes();
  if (bytes % row_bytes != 0)
    throw std::invalid_argument(std::to_string(bytes) + " bytes are not whole rows of " +
                                std::to_string(row_bytes) + " bytes");
  const int64_t count = static_cast<int64_t>(bytes / row_bytes);
  check_rows(first_row, count);
  pack_rows(scheme_, rows_, cols_, memory_.get(), static_cast<int32_t>(first_row),
            static_cast<int32_t>(count), source);
  return static_cast<int32_t>(count);
}

Scheme parse_scheme(std::string_view name) {
  std::string names;
  for (int i = 0; i < kNumSchemes; ++i) {
    const SchemeInfo& info = scheme_info(static_cast<Scheme>(i));
    if (name == info.name) return info.scheme;
    names += std::string(i == 0 ? "" : ", ") + info.name;
  }
  throw std::invalid_argument("no scheme '" + std::string(name) + "'; one of: " + names);
}

}  // namespace farthing
