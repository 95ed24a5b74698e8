// VPDPBUSD over 256 bits: unsigned bytes times signed ones, four products to a 32-bit sum.
#pragma once

#include <immintrin.h>

#include "core/inline.h"

namespace farthing::FARTHING_ISA {

FARTHING_INLINE __m256i dot_bytes(__m256i sums, __m256i unsigned_bytes, __m256i signed_bytes) {
#if defined(__AVXVNNI__)
  return _mm256_dpbusd_avx_epi32(sums, unsigned_bytes, signed_bytes);
#else  // the same instruction in AVX-512's encoding: CMakeLists.txt, FARTHING_AVXVNNI_AS_AVX512
  return _mm256_dpbusd_epi32(sums, unsigned_bytes, signed_bytes);
#endif
}

}  // namespace farthing::FARTHING_ISA
