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

// -log(-log u) for u = x / 2^32 + (z | 1) / 2^64.
FARTHING_INLINE Lanes gumbel(IntLanes x, IntLanes z) {
  const IntLanes one = broadcast_int(1), ones = broadcast_int(0xffffffff);
  const Lanes unit = broadcast(0x1p-32f), fine = broadcast(0x1p-64f);
  const Lanes u = fma(unsigned_to_float(z | one), fine, unsigned_to_float(x) * unit);
  const Lanes rest =  // 1 - u
      fma(unsigned_to_float((z ^ ones) | one), fine, unsigned_to_float(x ^ ones) * unit);
  const IntLanes k = shift_right_signed<23>(as_int(u) - broadcast_int(0x3f3504f3));
  const Lanes mantissa = as_float(as_int(u) - shift_left<23>(k));
  // Near 1 the distance to 1 has bits that u lost; k is 0 there.
  const Mask near = less(rest, broadcast(0.2890625f));
  const Lanes f = select(near, negative(rest), mantissa - broadcast(1.0f));
  return negative(log(negative(detail::log_of_parts(f, to_float(k)))));
}

// No noise is above this.
inline constexpr float kHighestNoise = 44.5f;

FARTHING_INLINE PhiloxWords token_words(const NoiseKey& key, IntLanes tokens) {
  const PhiloxWords counter = {
      {broadcast_int(key.choice), broadcast_int(key.position), tokens,
       broadcast_int(static_cast<uint32_t>(NoisePurpose::token))}};
  return philox(counter, key.seed);
}

FARTHING_INLINE IntLanes tokens_from(int32_t first) {
  return iota() + broadcast_int(static_cast<uint32_t>(first));
}

FARTHING_INLINE Lanes token_noise(const NoiseKey& key, IntLanes tokens) {
  const PhiloxWords words = token_words(key, tokens);
  return gumbel(words.word[0], words.word[1]);
}

// Lanes whose height + noise may be `score` or more, told without a logarithm: the noise is below
// -log(1 - u), so it takes 1 - u < exp(height - score). A hundredth covers every rounding here and
// in the noise.
FARTHING_INLINE Mask may_reach(Lanes height, const PhiloxWords& words, Lanes score) {
  const IntLanes ones = broadcast_int(0xffffffff);
  const Lanes rest = unsigned_to_float(words.word[0] ^ ones) * broadcast(0x1p-32f);  // less is cut
  const Lanes most = exp_of_nonpositive((height - score) + broadcast(0.01f));
  return not_less(most, rest);
}

}  // namespace farthing::FARTHING_ISA
