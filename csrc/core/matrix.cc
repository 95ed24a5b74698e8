#include "core/matrix.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/weight_arena.h"
#include "kernels/linear/layout.h"
#include "kernels/linear/linear.h"

namespace farthing {

static_assert(Matrix::kMostCols + kSuperCols <= kWholeRow);

Matrix::Matrix(Scheme scheme, int32_t rows, int32_t cols, const Codebook& codebook, std::nullptr_t)
    : scheme_(scheme), rows_(rows), cols_(cols), row_block_bytes_(0) {
  const SchemeInfo& info = scheme_info(scheme);
  if (rows <= 0 || cols <= 0)
    throw std::invalid_argument("a matrix needs rows and columns, got (" + std::to_string(rows) +
                                ", " + std::to_string(cols) + ")");
  if (rows > kMostRows)
    throw std::invalid_argument("a matrix has at most " + std::to_string(kMostRows) +
                                " rows, got " + std::to_string(rows));
  if (cols > kMostCols)
    throw std::invalid_argument("a matrix has at most " + std::to_string(kMostCols) +
                                " columns, got " + std::to_string(cols));
  if (scheme_traits(scheme).sub_cols != 0) check_block_cols();
  if (codebook && info.codebook == nullptr)
    throw std::invalid_argument(std::string(info.name) + " has no codebook");
  if (info.codebook != nullptr)
    std::copy_n(codebook ? codebook->data() : info.codebook, 16, codebook_.begin());
  row_block_bytes_ = farthing::row_block_bytes(scheme, cols);
}

Matrix::Matrix(Scheme scheme, int32_t rows, int32_t cols, const Codebook& codebook)
    : Matrix(scheme, rows, cols, codebook, nullptr) {
  memory_ = allocate_weights(nbytes());
  packed_ = memory_;
}

Matrix::Matrix(Scheme scheme, int32_t rows, int32_t cols, const Codebook& codebook,
               std::shared_ptr<const uint8_t> packed, size_t bytes)
    : Matrix(scheme, rows, cols, codebook, nullptr) {
  if (bytes != nbytes())
    throw std::invalid_argument("a packed " + std::string(scheme_info(scheme).name) +
                                " matrix of (" + std::to_string(rows) + ", " +
                                std::to_string(cols) + ") takes " + std::to_string(nbytes()) +
                                " bytes, not " + std::to_string(bytes));
  const size_t off = reinterpret_cast<uintptr_t>(packed.get()) % kLineBytes;
  if (off != 0)
    throw std::invalid_argument("packed bytes must start on a multiple of 64, not " +
                                std::to_string(off) + " past one");
  packed_ = std::move(packed);
}

size_t Matrix::row_block_bytes(Scheme scheme, int32_t cols) {
  return Matrix(scheme, 1, cols, std::nullopt, nullptr).row_block_bytes_;
}

MatrixView Matrix::view() const {
  MatrixView v{scheme_, rows_, cols_, packed_.get(), row_block_bytes_, {}};
  std::copy(codebook_.begin(), codebook_.end(), v.codebook);
  return v;
}

void Matrix::check_block_cols() const {
  const SchemeInfo& info = scheme_info(scheme_);
  if (cols_ % info.block_cols != 0)
    throw std::invalid_argument(std::string(info.name) + " needs a multiple of " +
                                std::to_string(info.block_cols) + " columns, got " +
                                std::to_string(cols_));
}

size_t Matrix::source_row_bytes() const {
  const SchemeInfo& info = scheme_info(scheme_);
  if (info.block_cols == 0)
    throw std::invalid_argument(std::string(info.name) +
                                " is the format of no checkpoint; pack codes and scales");
  check_block_cols();
  return static_cast<size_t>(cols_ / info.block_cols) * static_cast<size_t>(info.block_bytes);
}

int32_t Matrix::groups() const {
  const SchemeTraits& traits = scheme_traits(scheme_);
  if (traits.group == 0 || traits.sub_cols != 0)
    throw std::invalid_argument(std::string(scheme_info(scheme_).name) +
                                " is not codes with one level of scales; pack its bytes");
  return (cols_ - 1) / traits.group + 1;
}

uint8_t* Matrix::writable() const {
  if (!memory_) throw std::invalid_argument("a matrix made of packed bytes cannot be packed again");
  return memory_.get();
}

void Matrix::check_rows(int64_t first_row, int64_t count) const {
  if (first_row < 0 || count < 0 || first_row > rows_ || count > rows_ - first_row)
    throw std::invalid_argument(std::to_string(count) + " rows from row " +
                                std::to_string(first_row) + " on, of a matrix of " +
                                std::to_string(rows_) + " rows");
}

int32_t Matrix::pack(int64_t first_row, const uint8_t* source, size_t bytes) {
  const size_t row_bytes = source_row_bytes();
  if (bytes % row_bytes != 0)
    throw std::invalid_argument(std::to_string(bytes) + " bytes are not whole rows of " +
                                std::to_string(row_bytes) + " bytes");
  const int64_t count = static_cast<int64_t>(bytes / row_bytes);
  check_rows(first_row, count);
  pack_rows(scheme_, cols_, writable(), static_cast<int32_t>(first_row),
            static_cast<int32_t>(count), source);
  return static_cast<int32_t>(count);
}

void Matrix::pack_codes(int64_t first_row, int64_t count, const uint8_t* codes,
                        const uint16_t* scales, const uint16_t* minimums) {
  const SchemeInfo& info = scheme_info(scheme_);
  const SchemeTraits& traits = scheme_traits(scheme_);
  const std::string name = info.name;
  (void)groups();
  if (traits.minimum != (minimums != nullptr))
    throw std::invalid_argument(name + (traits.minimum ? " needs minimums" : " has no minimums"));
  check_rows(first_row, count);
  const size_t total = static_cast<size_t>(count) * static_cast<size_t>(cols_);
  const uint8_t most = static_cast<uint8_t>((1 << traits.code_bits) - 1);
  uint8_t all = 0;
  for (size_t i = 0; i < total; ++i) all |= codes[i];
  if (all > most) {
    size_t at = 0;
    while (codes[at] <= most) ++at;
    throw std::invalid_argument(
        name + " has codes of 0 to " + std::to_string(most) + ", got " + std::to_string(codes[at]) +
        " at row " + std::to_string(first_row + static_cast<int64_t>(at / cols_)) + ", column " +
        std::to_string(at % static_cast<size_t>(cols_)));
  }
  farthing::pack_codes(scheme_, cols_, writable(), static_cast<int32_t>(first_row),
                       static_cast<int32_t>(count), codes, scales, minimums);
}

void Matrix::fill_packed(size_t offset, const uint8_t* bytes, size_t count) {
  if (offset > nbytes() || count > nbytes() - offset)
    throw std::invalid_argument(std::to_string(count) + " bytes from byte " +
                                std::to_string(offset) + " on, of packed memory of " +
                                std::to_string(nbytes()) + " bytes");
  std::memcpy(writable() + offset, bytes, count);
}

Scheme parse_scheme(std::string_view name) {
  std::string names;
  for (int i = 0; i < kNumSchemes; ++i) {
    const SchemeInfo& info = scheme_info(static_cast<Scheme>(i));
    if (name == info.name || (info.alias != nullptr && name == info.alias)) return info.scheme;
    names += std::string(i == 0 ? "" : ", ") + info.name;
    if (info.alias != nullptr) names += std::string(" (") + info.alias + ")";
  }
  throw std::invalid_argument("no scheme '" + std::string(name) + "'; one of: " + names);
}

}  // namespace farthing
