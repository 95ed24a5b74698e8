#include "core/dispatch.h"
#include "kernels/linear/linear.h"

namespace farthing {

FARTHING_DISPATCH(LinearKernels, linear_table, linear_kernels, avx2)

const SchemeInfo& scheme_info(Scheme scheme) {
  static constexpr SchemeInfo kTable[] = {
      {Scheme::f32, "f32", 1, 4, 0},         {Scheme::f16, "f16", 1, 2, 0},
      {Scheme::bf16, "bf16", 1, 2, 0},       {Scheme::q4_0, "q4_0", 32, 18, 32},
      {Scheme::q4_1, "q4_1", 32, 20, 32},    {Scheme::q5_0, "q5_0", 32, 22, 32},
      {Scheme::q5_1, "q5_1", 32, 24, 32},    {Scheme::q8_0, "q8_0", 32, 34, 32},
      {Scheme::q4_k, "q4_k", 256, 144, 256}, {Scheme::q5_k, "q5_k", 256, 176, 256},
      {Scheme::q6_k, "q6_k", 256, 210, 256},
  };
  static_assert(sizeof(kTable) / sizeof(kTable[0]) == static_cast<int>(Scheme::q6_k) + 1);
  return kTable[static_cast<int>(scheme)];
}

}  // namespace farthing
