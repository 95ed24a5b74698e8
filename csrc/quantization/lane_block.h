// Sixteen rows of values side by side, a lane each, so that whatever is summed or chosen for a row
// stays in its lane: the lanes of a vector hold different results, and each is added up in order.
#pragma once

#include "core/aligned_buffer.h"
#include "quantization/doubles.h"

#include <cstddef>

namespace farthing::FARTHING_ISA {

inline constexpr size_t kResidues = 16;  // of columns: a row's sum is of so many partial sums

// Partial sums of columns with residues 0 to 15, joined by a fixed tree: residues 4 apart and 8
// apart in float, then neighbours in double.
FARTHING_INLINE Doubles joined(const Lanes (&partial)[kResidues]) {
  Doubles four[4];
  for (int i = 0; i < 4; ++i)
    four[i] = doubles((partial[i] + partial[i + 4]) + (partial[i + 8] + partial[i + 12]));
  Doubles total;
  for (int i = 0; i < kDoubleVectors; ++i)
    total.vectors[i] = (four[0].vectors[i] + four[1].vectors[i]) +
                       (four[2].vectors[i] + four[3].vectors[i]);
  return total;
}

class LaneBlock {
 public:
  explicit LaneBlock(size_t most_columns)
      : memory_(most_columns * kGroups * sizeof(float)), values_(memory_.as<float>()) {}

  void fill(const float* const (&rows)[kGroups], size_t columns) {
    columns_ = columns;
    for (size_t residue = 0; residue < kResidues; ++residue)
      first_[residue + 1] =
          first_[residue] + columns / kResidues + (residue < columns % kResidues ? 1 : 0);
    for (size_t column = 0; column < columns; ++column) {
      float* to = values_ + kGroups * place(column);
      for (int lane = 0; lane < kGroups; ++lane) to[lane] = rows[lane][column];
    }
  }

  // Calls body(values, residue) for each column in ascending order.
  template <class Body>
  FARTHING_INLINE void each_column(Body body) const {
    for (size_t column = 0; column < columns_; ++column)
      body(load(values_ + kGroups * place(column)), column % kResidues);
  }

  // Calls body(values, sums) for each column to have it added to partial sums; their totals.
  template <int kSums, class Body>
  FARTHING_INLINE void sum(Doubles (&totals)[kSums], Body body) const {
    Lanes partial[kSums][kResidues];
    for (size_t residue = 0; residue < kResidues; ++residue) {
      Lanes sums[kSums];
      for (Lanes& each : sums) each = zero();
      const float* const end = values_ + kGroups * first_[residue + 1];
      for (const float* x = values_ + kGroups * first_[residue]; x < end; x += kGroups)
        body(load(x), sums);
      for (int i = 0; i < kSums; ++i) partial[i][residue] = sums[i];
    }
    for (int i = 0; i < kSums; ++i) totals[i] = joined(partial[i]);
  }

 private:
  // Columns lie by residue, so that a partial sum reads straight on.
  FARTHING_INLINE size_t place(size_t column) const {
    return first_[column % kResidues] + column / kResidues;
  }

  AlignedBuffer memory_;
  float* values_;
  size_t columns_ = 0;
  size_t first_[kResidues + 1] = {};  // place of each residue's first column
};

}  // namespace farthing::FARTHING_ISA
