#include "core/dot_bytes.h"
#include "kernels/limits/accumulate.h"
#include "kernels/limits/limits.h"

namespace farthing::FARTHING_ISA {
namespace {

uint64_t dot_sums(int64_t iterations) {
  __m256i sums[kAccumulators];
  accumulate(iterations, _mm256_set1_epi8(kWeightCode), _mm256_set1_epi8(kActivationCode), sums,
             [](__m256i sum, __m256i w, __m256i a) { return dot_bytes(sum, w, a); });
  return total<uint32_t>(sums);
}

uint64_t float_sums(int64_t iterations) {
  __m256 sums[kAccumulators];
  accumulate(iterations, _mm256_set1_ps(1.0f), _mm256_set1_ps(1.0f), sums,
             [](__m256 sum, __m256 w, __m256 a) { return _mm256_fmadd_ps(w, a, sum); });
  return total<float>(sums);
}

constexpr LimitLoop kLoops[] = {
    {"vpdpbusd (256 bits)", true, 32 * kAccumulators, 8 * kAccumulators,
     4 * kWeightCode * kActivationCode, 32, dot_sums},
    {"vfmadd", false, 8 * kAccumulators, 8 * kAccumulators, 1, 0, float_sums},
};

}  // namespace

extern const LimitLoops limit_table;
const LimitLoops limit_table{kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace farthing::FARTHING_ISA
