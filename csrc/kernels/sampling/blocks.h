// A row of logits in blocks of 64 columns, with mask and edits: one pass finds each block's maximum,
// everything after that looks only into blocks that matter.
#pragma once

#include "core/lanes.h"
#include "core/vector_math.h"
#include "kernels/sampling/selection.h"

namespace farthing::FARTHING_ISA {

FARTHING_INLINE float infinity() {
  return __builtin_bit_cast(float, constants::kInfinityBits);
}

// Columns column .. column + 15 of the logits, absent and forbidden ones -infinity.
FARTHING_INLINE Lanes allowed_lanes(const LogitRow& row, int32_t column) {
  const Lanes none = broadcast(-infinity());
  const int32_t rest = row.width - column;
  if (rest <= 0) return none;
  Lanes x = rest >= 16 ? load(row.logits + column)
                       : select(first_lanes(rest), load_first(row.logits + column, rest), none);
  if (row.allowed != nullptr)
    x = select(mask_of(row.allowed[column / 32] >> (column & 16)), x, none);
  return x;
}

inline bool is_allowed(const LogitRow& row, int32_t token) {
  return row.allowed == nullptr || (row.allowed[token / 32] >> (token % 32) & 1) != 0;
}

class Blocks {
 public:
  Blocks(const LogitRow& row, const SamplingScratch& scratch)
      : row_(row), scratch_(scratch), count_(num_blocks(row.width)) {
    find_maxima();
    if (row.num_edits > 0) apply_edits();
    Lanes best = broadcast(-infinity());
    for (int32_t b = 0; b < count_; b += 16) best = maximum(load(scratch.maxima + b), best);
    top_ = largest(best);
  }

  int32_t count() const { return count_; }
  bool has_nan() const { return has_nan_; }  // among the logits, allowed or not
  float top() const { return top_; }         // highest value; -infinity when there is none
  const float* maxima() const { return scratch_.maxima; }  // padded with -infinity to sixteens

  // The 64 values of a block, absent and forbidden ones -infinity.
  void values(int32_t block, float out[kBlockColumns]) const {
    const int32_t begin = block * kBlockColumns;
    for (int32_t i = 0; i < kBlockColumns; i += 16) store(out + i, allowed_lanes(row_, begin + i));
    if (row_.num_edits == 0) return;
    for (int32_t e = scratch_.first_edit[block]; e < scratch_.first_edit[block + 1]; ++e) {
      const TokenValue& edit = row_.edits[e];
      if (is_allowed(row_, edit.token)) out[edit.token - begin] = edit.value;
    }
  }

  // Calls body(values, p, first column), p the same sixteen in memory, for every sixteen values of
  // the blocks whose maxima visit(sixteen maxima) says.
  template <class Visit, class Body>
  FARTHING_INLINE void each(Visit visit, Body body) const {
    for (int32_t group = 0; group < count_; group += 16) {
      const int32_t present = count_ - group < 16 ? count_ - group : 16;
      uint32_t wanted =
          mask_bits(visit(load(scratch_.maxima + group))) & ((uint32_t{1} << present) - 1);
      for (; wanted != 0; wanted &= wanted - 1) {
        const int32_t block = group + __builtin_ctz(wanted);
        float x[kBlockColumns];
        values(block, x);
        for (int32_t i = 0; i < kBlockColumns; i += 16)
          body(load(x + i), x + i, block * kBlockColumns + i);
      }
    }
  }

  // A value that at least k <= count() blocks reach: the k-th largest maximum.
  float reached_by(int32_t k) const {
    const int32_t groups = (count_ + 15) / 16;
    float* ranked = scratch_.ranked;
    int32_t n = 0;
    float least = -infinity();
    if (k <= groups) {  // the best of each sixteen bound it, and most maxima are below that
      for (int32_t g = 0; g < groups; ++g) ranked[g] = largest(load(scratch_.maxima + 16 * g));
      least = kth_largest(ranked, groups, k);
    }
    for (int32_t b = 0; b < count_; ++b)
      if (scratch_.maxima[b] >= least) ranked[n++] = scratch_.maxima[b];
    return kth_largest(ranked, n, k);
  }

  // The first token of the order, when top is the highest value.
  int32_t first() const {
    const Lanes top = broadcast(top_);
    for (int32_t group = 0; group < count_; group += 16) {
      const uint32_t found = mask_bits(equal(load(scratch_.maxima + group), top));
      if (found == 0) continue;
      const int32_t block = group + __builtin_ctz(found);
      float x[kBlockColumns];
      values(block, x);
      for (int32_t i = 0; i < kBlockColumns; ++i)
        if (x[i] == top_) return block * kBlockColumns + i;
    }
    return kNotFinite;
  }

 private:
  void find_maxima() {
    const Lanes none = broadcast(-infinity());
    float lanes[16 * 16];
    for (int32_t i = 0; i < 16; ++i) store(lanes + 16 * i, none);
    Mask nan = first_lanes(0);
    for (int32_t group = 0; group < count_; group += 16) {
      const int32_t present = count_ - group < 16 ? count_ - group : 16;
      for (int32_t i = 0; i < present; ++i) {
        const int32_t column = (group + i) * kBlockColumns;
        Lanes x[4];
        if (column + kBlockColumns <= row_.width) {
          for (int32_t j = 0; j < 4; ++j) x[j] = load(row_.logits + column + 16 * j);
        } else {
          for (int32_t j = 0; j < 4; ++j) x[j] = tail(column + 16 * j);
        }
        nan = nan | unordered(x[0], x[1]) | unordered(x[2], x[3]);
        if (row_.allowed != nullptr)
          for (int32_t j = 0; j < 4; ++j) {
            const int32_t at = column + 16 * j;
            if (at < row_.width) x[j] = select(mask_of(row_.allowed[at / 32] >> (at & 16)), x[j], none);
          }
        store(lanes + 16 * i, maximum(maximum(x[0], x[1]), maximum(x[2], x[3])));
      }
      store(scratch_.maxima + group,
            select(first_lanes(present), largest_of_rows(lanes, present), none));
    }
    has_nan_ = mask_bits(nan) != 0;
  }

  Lanes tail(int32_t column) const {
    const int32_t rest = row_.width - column;
    const Lanes none = broadcast(-infinity());
    if (rest <= 0) return none;
    if (rest >= 16) return load(row_.logits + column);
    return select(first_lanes(rest), load_first(row_.logits + column, rest), none);
  }

  void apply_edits() {
    int32_t e = 0;
    for (int32_t block = 0; block < count_; ++block) {
      scratch_.first_edit[block] = e;
      while (e < row_.num_edits && row_.edits[e].token / kBlockColumns == block) ++e;
    }
    scratch_.first_edit[count_] = e;
    for (e = 0; e < row_.num_edits;) {
      const int32_t block = row_.edits[e].token / kBlockColumns;
      const int32_t end = scratch_.first_edit[block + 1];
      const float before = scratch_.maxima[block];
      float best = before;
      bool lowered = false;  // the maximum itself: another value of the block takes its place
      for (; e < end; ++e) {
        const TokenValue& edit = row_.edits[e];
        if (!is_allowed(row_, edit.token)) continue;
        if (edit.value > best) best = edit.value;
        lowered |= edit.value < before && row_.logits[edit.token] == before;
      }
      if (lowered && best == before) {
        float x[kBlockColumns];
        values(block, x);
        best =
            largest(maximum(maximum(load(x), load(x + 16)), maximum(load(x + 32), load(x + 48))));
      }
      scratch_.maxima[block] = best;
    }
  }

  const LogitRow& row_;
  const SamplingScratch& scratch_;
  const int32_t count_;
  float top_;
  bool has_nan_;
};

}  // namespace farthing::FARTHING_ISA
