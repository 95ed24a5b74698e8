// What scales are chosen for at a time: sixteen groups, each with numbers of its own, or a matrix
// that has one of each, whose rows take turns in the lanes.
#pragma once

#include "quantization/lane_block.h"
#include "quantization/rounding.h"

namespace farthing::FARTHING_ISA {

class Batch {
 public:
  // Groups `first` to `first + 15`, as far as there are: of `columns` columns from `offset` on,
  // `across` in a row, whose first one's numbers stand at `number`.
  struct Groups {
    size_t first, across, offset, columns, number;

    FARTHING_INLINE size_t row(size_t i) const { return i / across; }
  };

  Batch(const RoundingJob& job, LaneBlock& block)  // the whole matrix
      : job_(job), block_(block), whole_(true), lanes_(1), columns_(job.cols) {}
  Batch(const RoundingJob& job, LaneBlock& block, const Groups& groups)
      : job_(job), block_(block), whole_(false), columns_(groups.columns) {
    const size_t left = job.rows * groups.across - groups.first;
    lanes_ = left < kGroups ? static_cast<int>(left) : kGroups;
    for (int lane = 0; lane < lanes_; ++lane) {
      const size_t i = groups.first + lane, row = groups.row(i), g = i % groups.across;
      starts_[lane] = row * job.cols + groups.offset + g * groups.columns;
      rows_[lane] = row;
      numbers_[lane] = row * job.groups() + groups.number + g;
    }
    const float* rows[kGroups];
    for (int lane = 0; lane < kGroups; ++lane) rows[lane] = job.values + starts_[used(lane)];
    block_.fill(rows, columns_);
  }

  bool whole() const { return whole_; }
  size_t columns() const { return columns_; }
  // Those that have numbers of their own; the others' are those of the last one.
  int lanes() const { return lanes_; }
  FARTHING_INLINE int used(int lane) const { return lane < lanes_ ? lane : lanes_ - 1; }
  size_t row(int lane) const { return whole_ ? 0 : rows_[lane]; }
  size_t number(int lane) const { return whole_ ? 0 : numbers_[lane]; }

  // Calls body(start) for each row of values that has the numbers of the lane.
  template <class Body>
  FARTHING_INLINE void each_row(int lane, Body body) const {
    if (!whole_) return body(starts_[lane]);
    for (size_t row = 0; row < job_.rows; ++row) body(row * columns_);
  }

  Range range(int lane) const {
    Range all{};
    each_row(lane, [&](size_t start) {
      const Range range = range_of(job_.values + start, columns_);
      // What is equal stays as it was: zeros have signs.
      if (start == first(lane)) all = {job_.values[start], job_.values[start]};
      if (range.low < all.low) all.low = range.low;
      if (range.high > all.high) all.high = range.high;
    });
    return all;
  }

  // Calls body(block, rows) for all values, `rows` of the lanes being in use.
  template <class Body>
  FARTHING_INLINE void each_block(Body body) const {
    if (!whole_) return body(block_, kGroups);
    for (size_t first_row = 0; first_row < job_.rows; first_row += kGroups) {
      const float* rows[kGroups];
      const size_t left = job_.rows - first_row;
      const int count = left < kGroups ? static_cast<int>(left) : kGroups;
      for (int lane = 0; lane < kGroups; ++lane)
        rows[lane] = job_.values + (first_row + (lane < count ? lane : 0)) * columns_;
      block_.fill(rows, columns_);
      body(block_, count);
    }
  }

  // Adds sums of a block's rows to those of the numbers: of a matrix, one row after another.
  FARTHING_INLINE void add(const Doubles& sums, int rows, Doubles& totals) const {
    if (!whole_) {
      for (int lane = 0; lane < kGroups; ++lane) totals.v[lane] += sums.v[lane];
      return;
    }
    double total = totals.v[0];
    for (int row = 0; row < rows; ++row) total += sums.v[row];
    for (double& each : totals.v) each = total;
  }

 private:
  size_t first(int lane) const { return whole_ ? 0 : starts_[lane]; }

  const RoundingJob& job_;
  LaneBlock& block_;
  bool whole_;
  int lanes_;
  size_t columns_;
  size_t starts_[kGroups], rows_[kGroups], numbers_[kGroups];
};

// Calls body(batch) for all groups of a job, those that end a row short of columns after the
// others; body returns the row of a group that cannot be rounded, or the job's number of rows. The
// first of such rows.
template <class Body>
FARTHING_INLINE size_t first_failure(const RoundingJob& job, Body body) {
  const bool whole = job.group == kWholeMatrix;
  LaneBlock block(whole ? job.cols : job.group);
  if (whole) return body(Batch(job, block));
  const size_t full = job.cols / job.group, rest = job.cols % job.group;
  size_t failed = job.rows;
  const auto run = [&](size_t across, size_t offset, size_t columns, size_t number) {
    for (size_t first = 0; first < job.rows * across; first += kGroups) {
      const size_t row = body(Batch(job, block, {first, across, offset, columns, number}));
      if (row < failed) failed = row;
    }
  };
  if (full > 0) run(full, 0, job.group, 0);
  if (rest > 0) run(1, full * job.group, rest, full);
  return failed;
}

}  // namespace farthing::FARTHING_ISA
