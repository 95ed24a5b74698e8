#include "kernels/limits/accumulate.h"
#include "kernels/limits/limits.h"

namespace farthing::FARTHING_ISA {
namespace {

uint64_t dot_sums(int64_t iterations) {
  int32x4_t sums[kAccumulators];
  accumulate(iterations, vreinterpretq_s32_s8(vdupq_n_s8(kWeightCode)),
             vreinterpretq_s32_s8(vdupq_n_s8(kActivationCode)), sums,
             [](int32x4_t sum, int32x4_t w, int32x4_t a) {
               return vdotq_s32(sum, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(a));
             });
  return total<uint32_t>(sums);
}

uint64_t float_sums(int64_t iterations) {
  float32x4_t sums[kAccumulators];
  accumulate(iterations, vdupq_n_f32(1.0f), vdupq_n_f32(1.0f), sums,
             [](float32x4_t sum, float32x4_t w, float32x4_t a) { return vfmaq_f32(sum, w, a); });
  return total<float>(sums);
}

constexpr LimitLoop kLoops[] = {
    {"sdot", true, 16 * kAccumulators, 4 * kAccumulators, 4 * kWeightCode * kActivationCode, 32,
     dot_sums},
    {"fmla", false, 4 * kAccumulators, 4 * kAccumulators, 1, 0, float_sums},
};

}  // namespace

extern const LimitLoops limit_table;
const LimitLoops limit_table{kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace farthing::FARTHING_ISA
