#include "kernels/limits/accumulate.h"
#include "kernels/limits/limits.h"

namespace farthing::FARTHING_ISA {
namespace {

uint64_t int_sums(int64_t iterations) {
  uint32_t sums[kAccumulators];
  accumulate(iterations, uint32_t{kWeightCode}, uint32_t{kActivationCode}, sums,
             [](uint32_t sum, uint32_t w, uint32_t a) { return sum + w * a; });
  return total<uint32_t>(sums);
}

uint64_t float_sums(int64_t iterations) {
  float sums[kAccumulators];
  accumulate(iterations, 1.0f, 1.0f, sums,
             [](float sum, float w, float a) { return __builtin_fmaf(w, a, sum); });
  return total<float>(sums);
}

constexpr LimitLoop kLoops[] = {
    {"imul+add", true, kAccumulators, kAccumulators, kWeightCode * kActivationCode, 32, int_sums},
    {"vfmadd (scalar)", false, kAccumulators, kAccumulators, 1, 0, float_sums},
};

}  // namespace

extern const LimitLoops limit_table;
const LimitLoops limit_table{kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace farthing::FARTHING_ISA
