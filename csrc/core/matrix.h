// A weight matrix in the packed layout, owning its memory.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/types.h"

namespace farthing {

class Matrix {
 public:
  using Codebook = std::optional<std::array<int8_t, 16>>;
  static constexpr int32_t kMostRows = INT32_MAX / kLanes * kLanes;  // so are whole blocks of them
  static constexpr int32_t kMostCols = (1 << 30) - 256;  // filled up they are below kWholeRow

  // Zeroed memory on huge pages. `codebook` is another than the scheme's own, which is taken where
  // none is given. Throws std::invalid_argument for sizes the scheme cannot hold and for a codebook
  // where the scheme has none, std::bad_alloc.
  Matrix(Scheme scheme, int32_t rows, int32_t cols, const Codebook& codebook = std::nullopt);

  // A matrix of packed bytes that are someone else's, kept alive by `packed`; it cannot be packed
  // again. Throws std::invalid_argument, also for a length or an alignment that is not the layout's.
  Matrix(Scheme scheme, int32_t rows, int32_t cols, const Codebook& codebook,
         std::shared_ptr<const uint8_t> packed, size_t bytes);

  // Packed bytes of 16 rows of such a matrix; nothing is allocated. Throws std::invalid_argument.
  static size_t row_block_bytes(Scheme scheme, int32_t cols);

  // Packs checkpoint bytes into rows first_row.. (their count follows from the size) and returns
  // the count. Threads may pack disjoint rows at once, in any order. Throws std::invalid_argument.
  int32_t pack(int64_t first_row, const uint8_t* source, size_t bytes);

  // Packs `count` rows of codes (count, cols) and the bits of fp16 scales and minimums (count,
  // groups()) into rows first_row.., as kernels/linear/linear.h says. Throws std::invalid_argument.
  void pack_codes(int64_t first_row, int64_t count, const uint8_t* codes, const uint16_t* scales,
                  const uint16_t* minimums);

  // Copies packed bytes to `offset` of the packed memory. Threads may fill disjoint parts at once.
  // Throws std::invalid_argument.
  void fill_packed(size_t offset, const uint8_t* bytes, size_t count);

  // Throws std::invalid_argument, with all numbers, if the `count` rows do not exist.
  void check_rows(int64_t first_row, int64_t count) const;

  MatrixView view() const;
  const uint8_t* data() const { return packed_.get(); }
  Scheme scheme() const { return scheme_; }
  int32_t rows() const { return rows_; }
  int32_t cols() const { return cols_; }
  int32_t row_blocks() const { return (rows_ + kLanes - 1) / kLanes; }
  size_t nbytes() const { return row_block_bytes_ * static_cast<size_t>(row_blocks()); }
  size_t source_row_bytes() const;  // of one row in the checkpoint; throws std::invalid_argument
  // Scales of a row, of schemes with one level of them; throws std::invalid_argument for others.
  int32_t groups() const;

 private:
  Matrix(Scheme scheme, int32_t rows, int32_t cols, const Codebook& codebook, std::nullptr_t);
  void check_block_cols() const;
  uint8_t* writable() const;  // throws std::invalid_argument

  Scheme scheme_;
  int32_t rows_;
  int32_t cols_;
  size_t row_block_bytes_;
  std::array<int8_t, 16> codebook_{};
  std::shared_ptr<uint8_t> memory_;  // null where the packed bytes are someone else's
  std::shared_ptr<const uint8_t> packed_;
};

// By name or alias. Throws std::invalid_argument naming the schemes that exist.
Scheme parse_scheme(std::string_view name);

}  // namespace farthing
