#include <immintrin.h>

#include "kernels/limits/accumulate.h"
#include "kernels/limits/limits.h"

namespace farthing::FARTHING_ISA {
namespace {

constexpr int32_t kPairSum = 2 * kWeightCode * kActivationCode;

uint64_t narrow_sums(int64_t iterations) {
  __m256i sums[kAccumulators];
  accumulate(iterations, _mm256_set1_epi8(kWeightCode), _mm256_set1_epi8(kActivationCode), sums,
             [](__m256i sum, __m256i w, __m256i a) {
               return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, a));
             });
  return total<uint16_t>(sums);
}

uint64_t wide_sums(int64_t iterations) {
  __m256i sums[kAccumulators];
  const __m256i ones = _mm256_set1_epi16(1);
  accumulate(iterations, _mm256_set1_epi8(kWeightCode), _mm256_set1_epi8(kActivationCode), sums,
             [ones](__m256i sum, __m256i w, __m256i a) {
               const __m256i pairs = _mm256_maddubs_epi16(w, a);
               return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
             });
  return total<uint32_t>(sums);
}

uint64_t float_sums(int64_t iterations) {
  __m256 sums[kAccumulators];
  accumulate(iterations, _mm256_set1_ps(1.0f), _mm256_set1_ps(1.0f), sums,
             [](__m256 sum, __m256 w, __m256 a) { return _mm256_fmadd_ps(w, a, sum); });
  return total<float>(sums);
}

constexpr LimitLoop kLoops[] = {
    {"vpmaddubsw+vpaddw", true, 32 * kAccumulators, 16 * kAccumulators, kPairSum, 16, narrow_sums},
    {"vpmaddubsw+vpmaddwd+vpaddd", true, 32 * kAccumulators, 8 * kAccumulators, 2 * kPairSum, 32,
     wide_sums},
    {"vfmadd", false, 8 * kAccumulators, 8 * kAccumulators, 1, 0, float_sums},
};

}  // namespace

extern const LimitLoops limit_table;
const LimitLoops limit_table{kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace farthing::FARTHING_ISA
