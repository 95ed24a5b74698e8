// Log probabilities of a row: the likeliest tokens and a chosen one.
#pragma once

#include "kernels/sampling/filters.h"

namespace farthing::FARTHING_ISA {

inline float log_sum_exp_below(const float* logits, int32_t width, float top) {
  Lanes total = zero();
  for (int32_t i = 0; i < width; i += 16) {
    const int32_t rest = width - i < 16 ? width - i : 16;
    const Lanes x = rest == 16 ? load(logits + i) : load_first(logits + i, rest);
    total = total + keep(first_lanes(rest), exp_of_nonpositive(x - broadcast(top)));
  }
  float logs[16];
  store(logs, log(broadcast(sum(total))));
  return top + logs[0];
}

inline float log_sum_exp(const float* logits, int32_t width) {
  Lanes best = broadcast(-infinity());
  Mask nan = first_lanes(0);
  for (int32_t i = 0; i < width; i += 16) {
    const int32_t rest = width - i < 16 ? width - i : 16;
    const Lanes x = select(first_lanes(rest), load_first(logits + i, rest), best);
    best = maximum(x, best);
    nan = nan | unordered(x, x);
  }
  if (mask_bits(nan) != 0) return __builtin_bit_cast(float, constants::kNanBits);
  const float top = largest(best);
  return top - top != 0.0f ? top : log_sum_exp_below(logits, width, top);
}

// Lanes below `count`, none if it is negative.
FARTHING_INLINE uint32_t bits_below(int32_t count) {
  return count <= 0 ? 0 : (count >= 16 ? 0xffff : (uint32_t{1} << count) - 1);
}

// How many tokens come before one in the order.
inline int32_t tokens_before(const LogitRow& row, const Blocks& blocks, int32_t token) {
  const float value = row.logits[token];
  int32_t before = 0;
  for (int32_t group = 0; group < blocks.count(); group += 16) {
    const Lanes best = load(blocks.maxima() + group);
    uint32_t reaching = mask_bits(not_less(best, broadcast(value)));
    for (; reaching != 0; reaching &= reaching - 1) {
      const int32_t block = group + __builtin_ctz(reaching);
      if (block >= blocks.count()) break;
      for (int32_t i = 0; i < kBlockColumns; i += 16) {
        const int32_t begin = block * kBlockColumns + i;
        const uint32_t present = bits_below(row.width - begin);
        const Lanes x = allowed_lanes(row, begin);
        const uint32_t equals = mask_bits(equal(x, broadcast(value))) & bits_below(token - begin);
        before += __builtin_popcount((mask_bits(less(broadcast(value), x)) | equals) & present);
      }
    }
  }
  return before;
}

inline bool logprobs(const float* logits, int32_t width, int32_t chosen, int32_t n,
                     TokenValue* best, ChosenLogprob* of_chosen, const SamplingScratch& scratch) {
  const LogitRow row = {logits, width};
  const Blocks blocks(row, scratch);
  if (blocks.has_nan() || blocks.top() - blocks.top() != 0.0f) return false;
  const float total = log_sum_exp_below(logits, width, blocks.top());
  *of_chosen = {logits[chosen] - total, tokens_before(row, blocks, chosen) + 1};
  if (n == 0) return true;
  Candidate* candidates = scratch.candidates;
  int32_t found = gather_first(blocks, n, scratch);
  sort_by_value(candidates, found);
  for (int32_t i = 0; i < found; ++i) best[i] = {candidates[i].token, candidates[i].value - total};
  // Tokens of value -infinity are no candidates; they end the order by id.
  for (int32_t token = 0; found < n; ++token)
    if (logits[token] == -infinity()) best[found++] = {token, -infinity()};
  return true;
}

}  // namespace farthing::FARTHING_ISA
