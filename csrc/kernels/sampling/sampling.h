// Choosing tokens from rows of logits: contract shared by every instruction set.
//
// What is drawn from a row is fixed to the bit, whatever the instruction set:
//
// - Tokens are ordered by (value descending, id ascending); -0 equals 0. A value is the edited
//   logit where there is an edit, else the logit. Tokens of value -infinity and tokens that the
//   mask forbids are never candidates.
// - The height of a token is (value - top) / temperature, rounded twice, top being the highest
//   value that the mask allows. Its weight is rint(2^40 exp(height)), an integer, so that sums of
//   weights are exact in any order. Its ratio is exp(height) itself.
// - Filters shrink the candidates one after the other: top_k keeps the first k; top_p the shortest
//   beginning whose weights reach ceil(top_p * all their weights); min_p those whose ratio is at
//   least min_p; typical_p orders by (|height + mean|, value descending, id ascending), mean being
//   the sum of rint(2^40 * ratio * -height) by that of the weights, and keeps the shortest
//   beginning that reaches ceil(typical_p * all their weights). Products with doubles.
//   |height + mean| is |-log p - entropy| of locally typical sampling (Meister, Pimentel, Wiher and
//   Cotterell, TACL 2023): the logarithm of the total cancels.
// - The token is the candidate of highest height + noise, the lowest id among equals.
#pragma once

#include "core/isa.h"
#include "core/types.h"
#include "kernels/sampling/row_best.h"

namespace farthing {

// Last word of the counter: numbers drawn for different ends never coincide.
enum class NoisePurpose : uint32_t { token = 0, token_finer = 1 };

// Why a row has no token.
inline constexpr int32_t kNotFinite = -1;       // a logit is NaN, or none is finite
inline constexpr int32_t kNothingAllowed = -2;  // mask and edits leave no candidate

struct TokenValue {
  int32_t token;
  float value;
};

// A row of logits and what changes it, without a copy of it.
struct LogitRow {
  const float* logits;
  int32_t width;
  const uint32_t* allowed = nullptr;  // bit i % 32 of word i / 32: token i; null allows all
  const TokenValue* edits = nullptr;  // tokens ascending, each once, below width
  int32_t num_edits = 0;
};

struct Filters {
  float temperature = 1.0f;  // 0 or below: the first of the order
  int32_t top_k = 0;         // 0 is off
  double top_p = 1.0;        // 1 is off
  float min_p = 0.0f;        // 0 is off
  double typical_p = 1.0;    // 1 is off
};

struct NoiseKey {
  uint64_t seed;
  uint32_t choice;
  uint32_t position;
};

struct Candidate {
  float value;
  int32_t token;
  float height;
  float ratio;
  uint64_t weight;
  float deviation;  // |height + mean|
};

// Memory for one row of at most `width` logits; rows.h owns it.
struct SamplingScratch {
  float* maxima;          // one for each block of 64 columns, as many as fill 16
  float* ranked;          // as many
  int32_t* first_edit;    // one more than blocks
  Candidate* candidates;  // width
};

struct ChosenLogprob {
  float logprob;
  int32_t rank;  // 1 + tokens before it in the order
};

// The noise of one (seed, choice, position, token) is a pure function of the four.
//
// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011), counter words (choice, position, token / 64 * 16 + token % 16, purpose), key words (low
// half of seed, high half): word token / 16 % 4 of the result is the token's own, x, and with purpose
// token_finer another, z. u = x / 2^32 and 1 - u = ~x / 2^32; where x < 2^24, u is (z | 1) / 2^64
// more, and where ~x < 2^24, 1 - u is (~z | 1) / 2^64 more. So u is never 0 or 1 and has a float's
// precision at both ends: 32 bits would give a token of probability 2^-32 or less no share or twice
// its own, and a vocabulary has room for 10^5 of them. The Gumbel variate is -log(-log u), with
// log1p's precision where u is near 1: between -3.8 and 44.4.
struct SamplingKernels {
  // The token of a row, kNotFinite or kNothingAllowed. An infinite top is chosen without noise.
  int32_t (*choose)(const LogitRow& row, const Filters& filters, const NoiseKey& key,
                    const SamplingScratch& scratch);
  // Joins columns first_token .. first_token + width - 1, higher than those seen before, to `best`.
  void (*see_columns)(const float* x, int32_t width, int32_t first_token, RowBest& best);
  // What `choose` would draw from, into scratch.candidates in no order; their number, 0 for a row
  // without a token. temperature must be above 0 and the top finite.
  int32_t (*keep)(const LogitRow& row, const Filters& filters, const SamplingScratch& scratch);
  // log(sum(exp(x))), the maximum subtracted before and added after; lane i sums columns i, i + 16,
  // ... ascending, lanes join by the fixed tree. NaN if any value is.
  float (*log_sum_exp)(const float* logits, int32_t width);
  // The first n <= width tokens of the order into `best` with logit - log_sum_exp as value, and the
  // same of `chosen`. False, and nothing written, if a logit is NaN or the highest is not finite.
  bool (*logprobs)(const float* logits, int32_t width, int32_t chosen, int32_t n, TokenValue* best,
                   ChosenLogprob* of_chosen, const SamplingScratch& scratch);
  // The Gumbel variates of tokens first_token, first_token + 1, ...
  void (*gumbel_row)(const NoiseKey& key, uint32_t first_token, int32_t count, float* out);
  // The Gumbel variates that the words x[i], z[i] give.
  void (*gumbel_of_words)(const uint32_t* x, const uint32_t* z, int32_t count, float* out);
  // The four Philox words of counters (c0, c1, c2 + i, c3), i < count: out (count, 4).
  void (*philox_rows)(uint64_t key, const uint32_t counter[4], int32_t count, uint32_t* out);
};
const SamplingKernels& sampling_kernels(Isa isa);

}  // namespace farthing
