#include <immintrin.h>

#include "kernels/limits/accumulate.h"
#include "kernels/limits/limits.h"

namespace farthing::FARTHING_ISA {
namespace {

constexpr int32_t kPairSum = 2 * kWeightCode * kActivationCode;

uint64_t narrow_sums(int64_t iterations) {
  __m512i sums[kAccumulators];
  accumulate(iterations, _mm512_set1_epi8(kWeightCode), _mm512_set1_epi8(kActivationCode), sums,
             [](__m512i sum, __m512i w, __m512i a) {
               return _mm512_add_epi16(sum, _mm512_maddubs_epi16(w, a));
             });
  return total<uint16_t>(sums);
}

uint64_t wide_sums(int64_t iterations) {
  __m512i sums[kAccumulators];
  const __m512i ones = _mm512_set1_epi16(1);
  accumulate(iterations, _mm512_set1_epi8(kWeightCode), _mm512_set1_epi8(kActivationCode), sums,
             [ones](__m512i sum, __m512i w, __m512i a) {
               const __m512i pairs = _mm512_maddubs_epi16(w, a);
               return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, ones));
             });
  return total<uint32_t>(sums);
}

uint64_t dot_sums(int64_t iterations) {
  __m512i sums[kAccumulators];
  accumulate(iterations, _mm512_set1_epi8(kWeightCode), _mm512_set1_epi8(kActivationCode), sums,
             [](__m512i sum, __m512i w, __m512i a) { return _mm512_dpbusd_epi32(sum, w, a); });
  return total<uint32_t>(sums);
}

uint64_t float_sums(int64_t iterations) {
  __m512 sums[kAccumulators];
  accumulate(iterations, _mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f), sums,
             [](__m512 sum, __m512 w, __m512 a) { return _mm512_fmadd_ps(w, a, sum); });
  return total<float>(sums);
}

constexpr LimitLoop kLoops[] = {
    {"vpmaddubsw+vpaddw", true, 64 * kAccumulators, 32 * kAccumulators, kPairSum, 16, narrow_sums},
    {"vpmaddubsw+vpmaddwd+vpaddd", true, 64 * kAccumulators, 16 * kAccumulators, 2 * kPairSum, 32,
     wide_sums},
    {"vpdpbusd", true, 64 * kAccumulators, 16 * kAccumulators, 2 * kPairSum, 32, dot_sums},
    {"vfmadd", false, 16 * kAccumulators, 16 * kAccumulators, 1, 0, float_sums},
};

}  // namespace

extern const LimitLoops limit_table;
const LimitLoops limit_table{kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace farthing::FARTHING_ISA
