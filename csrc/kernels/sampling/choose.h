// Greedy choice and coupled sampling, written once in Lanes.
#pragma once

#include "kernels/sampling/filters.h"
#include "kernels/sampling/greedy.h"
#include "kernels/sampling/logprobs.h"
#include "kernels/sampling/noise.h"

namespace farthing::FARTHING_ISA {

inline bool any_finite(const float* x, int32_t width) {
  for (int32_t i = 0; i < width; ++i)
    if (x[i] - x[i] == 0.0f) return true;
  return false;
}

inline bool any_above_minus_infinity(const float* x, int32_t width) {
  for (int32_t i = 0; i < width; ++i)
    if (x[i] > -infinity()) return true;
  return false;
}

// kNotFinite or kNothingAllowed, or 0 for a row that has a token.
inline int32_t refusal(const LogitRow& row, const Blocks& blocks) {
  if (blocks.has_nan()) return kNotFinite;
  if (blocks.top() == -infinity())
    return any_above_minus_infinity(row.logits, row.width) ? kNothingAllowed : kNotFinite;
  if (blocks.top() == infinity() && !any_finite(row.logits, row.width)) return kNotFinite;
  return 0;
}

struct BestScore {
  float score;
  int32_t token;
  // Takes the lanes of `present`; tokens[lane] is a lane's token.
  template <class TokenOf>
  FARTHING_INLINE void offer(Lanes scores, uint32_t present, TokenOf token_of) {
    uint32_t rivals = ~mask_bits(less(scores, broadcast(score))) & present;
    if (rivals == 0) return;
    float all[16];
    store(all, scores);
    for (; rivals != 0; rivals &= rivals - 1) {
      const int32_t lane = __builtin_ctz(rivals);
      const int32_t rival = token_of(lane);
      if (all[lane] > score || (all[lane] == score && rival < token)) {
        score = all[lane];
        token = rival;
      }
    }
  }
};

// No noise is above its bound, and every step of a score rises with the noise and the value, so
// blocks and lanes that cannot reach the best score so far need no noise.
inline int32_t draw_from_row(const Blocks& blocks, float temperature, const NoiseKey& key) {
  const Heights heights = {blocks.top(), temperature};
  const Lanes bound = broadcast(kHighestNoise);
  BestScore best{0.0f, blocks.first()};
  float noise[16];
  store(noise, token_noise(key, tokens_from(best.token)));
  best.score = noise[0];
  for (int32_t group = 0; group < blocks.count(); group += 16) {
    float reach[16];  // the highest score that a block may have
    const Lanes reaches = heights(load(blocks.maxima() + group)) + bound;
    store(reach, reaches);
    uint32_t wanted = ~mask_bits(less(reaches, broadcast(best.score))) & 0xffff;
    for (; wanted != 0; wanted &= wanted - 1) {
      const int32_t block = group + __builtin_ctz(wanted);
      if (reach[block - group] < best.score) continue;
      float x[kBlockColumns];
      blocks.values(block, x);
      const PhiloxWords words = noise_words(key, block_counters(block), NoisePurpose::token);
      for (int32_t i = 0; i < kBlockColumns; i += 16) {
        const Lanes height = heights(load(x + i));
        const IntLanes word = words.word[i / 16];
        const uint32_t able = ~mask_bits(less(height + bound, broadcast(best.score))) & 0xffff;
        if (able == 0) continue;
        const int32_t first = block * kBlockColumns + i;
        if ((mask_bits(may_reach(height, word, broadcast(best.score))) & able) == 0) continue;
        const auto finer = [&] {
          return noise_words(key, block_counters(block), NoisePurpose::token_finer).word[i / 16];
        };
        best.offer(height + gumbel(word, finer), able,
                   [first](int32_t lane) { return first + lane; });
      }
    }
  }
  return best.token;
}

inline int32_t draw_from_candidates(const Candidate* candidates, int32_t n, const NoiseKey& key) {
  BestScore best{-infinity(), INT32_MAX};
  for (int32_t i = 0; i < n; i += 16) {
    const int32_t count = n - i < 16 ? n - i : 16;
    float height[16];
    uint32_t token[16];
    for (int32_t j = 0; j < 16; ++j) {
      const Candidate& c = candidates[i + (j < count ? j : 0)];
      height[j] = c.height;
      token[j] = static_cast<uint32_t>(c.token);
    }
    const Lanes heights = load(height);
    const TokenWords words(key, load_ints(token));
    const IntLanes word = words(NoisePurpose::token);
    if (i > 0 && mask_bits(may_reach(heights, word, broadcast(best.score))) == 0) continue;
    const auto finer = [&] { return words(NoisePurpose::token_finer); };
    best.offer(heights + gumbel(word, finer), (uint32_t{1} << count) - 1,
               [&token](int32_t lane) { return static_cast<int32_t>(token[lane]); });
  }
  return best.token;
}

inline int32_t choose(const LogitRow& row, const Filters& filters, const NoiseKey& key,
                      const SamplingScratch& scratch) {
  const Blocks blocks(row, scratch);
  if (const int32_t why = refusal(row, blocks)) return why;
  if (!(filters.temperature > 0.0f) || blocks.top() == infinity()) return blocks.first();
  if (!any_filter(filters, row.width)) return draw_from_row(blocks, filters.temperature, key);
  const int32_t n = filtered(blocks, row.width, filters, scratch);
  return draw_from_candidates(scratch.candidates, n, key);
}

inline int32_t keep(const LogitRow& row, const Filters& filters, const SamplingScratch& scratch) {
  const Blocks blocks(row, scratch);
  if (refusal(row, blocks) != 0) return 0;
  return filtered(blocks, row.width, filters, scratch);
}

inline void gumbel_row(const NoiseKey& key, uint32_t first_token, int32_t count, float* out) {
  for (int32_t i = 0; i < count; i += 16)
    store_first(out + i, count - i < 16 ? count - i : 16,
                token_noise(key, tokens_from(static_cast<int32_t>(first_token) + i)));
}

inline void gumbel_of_words(const uint32_t* x, const uint32_t* z, int32_t count, float* out) {
  for (int32_t i = 0; i < count; i += 16) {
    const int32_t present = count - i < 16 ? count - i : 16;
    uint32_t both[2][16] = {};
    for (int32_t j = 0; j < present; ++j) {
      both[0][j] = x[i + j];
      both[1][j] = z[i + j];
    }
    store_first(out + i, present,
                gumbel(load_ints(both[0]), [&both] { return load_ints(both[1]); }));
  }
}

inline void philox_rows(uint64_t key, const uint32_t counter[4], int32_t count, uint32_t* out) {
  for (int32_t i = 0; i < count; i += 16) {
    const IntLanes third = iota() + broadcast_int(counter[2] + static_cast<uint32_t>(i));
    const PhiloxWords words = philox({{broadcast_int(counter[0]), broadcast_int(counter[1]), third,
                                       broadcast_int(counter[3])}},
                                     key);
    for (int w = 0; w < 4; ++w) {
      uint32_t lanes[16];
      store_ints(lanes, words.word[w]);
      for (int32_t lane = 0; lane < 16 && i + lane < count; ++lane)
        out[(i + lane) * 4 + w] = lanes[lane];
    }
  }
}

inline constexpr SamplingKernels kSampling = {choose,      see_columns, keep,
                                              log_sum_exp, logprobs,    gumbel_row,
                                              gumbel_of_words, philox_rows};

}  // namespace farthing::FARTHING_ISA
