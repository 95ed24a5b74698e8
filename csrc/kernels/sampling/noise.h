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

// -log(-log u) for u = (word | 1) / 2^32.
FARTHING_INLINE Lanes gumbel(IntLanes word) {
  const IntLanes one = broadcast_int(1);
  const Lanes unit = broadcast(0x1p-32f);
  const Lanes u = unsigned_to_float(word | one) * unit;
  const Lanes rest = unsigned_to_float((word ^ broadcast_int(0xffffffffu)) | one) * unit;  // 1 - u
  const IntLanes k = shift_right_signed<23>(as_int(u) - broadcast_int(0x3f3504f3));
  const Lanes mantissa = as_float(as_int(u) - shift_left<23>(k));
  // Near 1 the distance to 1 has bits that u lost; k is 0 there.
  const Mask near = less(rest, broadcast(0.2890625f));
  const Lanes f = select(near, negative(rest), mantissa - broadcast(1.0f));
  return negative(log(negative(detail::log_of_parts(f, to_float(k)))));
}

FARTHING_INLINE Lanes token_noise(uint64_t seed, uint32_t choice, uint32_t position,
                                  uint32_t first_token) {
  const PhiloxWords counter = {
      {broadcast_int(choice), broadcast_int(position), iota() + broadcast_int(first_token),
       broadcast_int(static_cast<uint32_t>(NoisePurpose::token))}};
  return gumbel(philox(counter, seed).word[0]);
}

}  // namespace farthing::FARTHING_ISA
