// Counter-based random numbers, sixteen counters at a time.
#pragma once

#include "core/lanes.h"
#include "core/vector_math.h"
#include "kernels/sampling/sampling.h"

namespace farthing::FARTHING_ISA {

struct PhiloxWords {
  IntLanes word[4];
};

// Philox4x32-10 of one counter per lane.
FARTHING_INLINE PhiloxWords philox(PhiloxWords counter, uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  IntLanes(&c)[4] = counter.word;
  for (int round = 0; round < 10; ++round) {
    IntLanes high0, low0, high2, low2;
    multiply_wide(c[0], 0xD2511F53u, high0, low0);
    multiply_wide(c[2], 0xCD9E8D57u, high2, low2);
    c[0] = high2 ^ c[1] ^ broadcast_int(key0);
    c[1] = low2;
    c[2] = high0 ^ c[3] ^ broadcast_int(key1);
    c[3] = low0;
    key0 += 0x9E3779B9u;  // the golden ratio and sqrt(3) - 1
    key1 += 0xBB67AE85u;
  }
  return counter;
}

FARTHING_INLINE PhiloxWords noise_words(const NoiseKey& key, IntLanes counters,
                                        NoisePurpose purpose) {
  return philox({{broadcast_int(key.choice), broadcast_int(key.position), counters,
                  broadcast_int(static_cast<uint32_t>(purpose))}},
                key.seed);
}

// The counters of the 64 tokens from 64 * block: word w of lane i is of the token 16 * w + i further.
FARTHING_INLINE IntLanes block_counters(int32_t block) {
  return iota() + broadcast_int(static_cast<uint32_t>(block) * 16);
}

// -log(-log u) of the first words x; finer() gives the second ones, asked for only where a lane
// needs it.
template <class Finer>
FARTHING_INLINE Lanes gumbel(IntLanes x, Finer finer) {
  const IntLanes ones = broadcast_int(0xffffffff);
  const Lanes unit = broadcast(0x1p-32f), few = broadcast(0x1p24f);
  const Lanes up = unsigned_to_float(x), down = unsigned_to_float(x ^ ones);
  Lanes u = up * unit, rest = down * unit;  // rest = 1 - u
  const Mask low = less(up, few), high = less(down, few);
  if (mask_bits(low | high) != 0) {
    const IntLanes z = finer(), one = broadcast_int(1);
    const Lanes fine = broadcast(0x1p-64f);
    u = select(low, fma(unsigned_to_float(z | one), fine, u), u);
    rest = select(high, fma(unsigned_to_float((z ^ ones) | one), fine, rest), rest);
  }
  const IntLanes k = shift_right_signed<23>(as_int(u) - broadcast_int(0x3f3504f3));
  const Lanes mantissa = as_float(as_int(u) - shift_left<23>(k));
  // Near 1 the distance to 1 has bits that u lost; k is 0 there.
  const Mask near = less(rest, broadcast(0.2890625f));
  const Lanes f = select(near, negative(rest), mantissa - broadcast(1.0f));
  return negative(log(negative(detail::log_of_parts(f, to_float(k)))));
}

// No noise is above this.
inline constexpr float kHighestNoise = 44.5f;

// The words of any sixteen tokens.
struct TokenWords {
  const NoiseKey& key;
  IntLanes counters;
  Lanes place;  // which word is the token's own

  FARTHING_INLINE TokenWords(const NoiseKey& noise_key, IntLanes tokens)
      : key(noise_key),
        counters(shift_left<4>(shift_right<6>(tokens)) + (tokens & broadcast_int(15))),
        place(to_float(shift_right<4>(tokens) & broadcast_int(3))) {}

  FARTHING_INLINE IntLanes operator()(NoisePurpose purpose) const {
    const PhiloxWords words = noise_words(key, counters, purpose);
    Lanes own = as_float(words.word[0]);
    for (int w = 1; w < 4; ++w)
      own = select(equal(place, broadcast(static_cast<float>(w))), as_float(words.word[w]), own);
    return as_int(own);
  }
};

FARTHING_INLINE Lanes token_noise(const NoiseKey& key, IntLanes tokens) {
  const TokenWords words(key, tokens);
  return gumbel(words(NoisePurpose::token), [&] { return words(NoisePurpose::token_finer); });
}

FARTHING_INLINE IntLanes tokens_from(int32_t first) {
  return iota() + broadcast_int(static_cast<uint32_t>(first));
}

// Lanes whose height + noise may be `score` or more, told without a logarithm: the noise is below
// -log(1 - u), so it takes 1 - u < exp(height - score). A hundredth covers every rounding here and
// in the noise.
FARTHING_INLINE Mask may_reach(Lanes height, IntLanes x, Lanes score) {
  const IntLanes ones = broadcast_int(0xffffffff);
  const Lanes rest = unsigned_to_float(x ^ ones) * broadcast(0x1p-32f);  // at most 1 - u
  const Lanes lacking = maximum((score - height) - broadcast(0.01f), zero());
  return not_less(exp_of_nonpositive(negative(lacking)), rest);
}

}  // namespace farthing::FARTHING_ISA
