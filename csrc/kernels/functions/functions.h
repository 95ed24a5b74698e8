// The functions of core/vector_math.h and core/double_math.h over arrays, one table per instruction
// set, so that tests and `farthing doctor` can hold them to their bounds and to each other.
#pragma once

#include "core/isa.h"

#include <cstdint>

namespace farthing {

struct FunctionKernels {
  void (*exp)(const float* x, int64_t count, float* out);
  void (*log)(const float* x, int64_t count, float* out);
  void (*tanh)(const float* x, int64_t count, float* out);
  void (*exp_double)(const double* x, int64_t count, double* out);
  void (*log_double)(const double* x, int64_t count, double* out);
  void (*sin_cos_double)(const double* x, int64_t count, double* sine, double* cosine);
};
const FunctionKernels& function_kernels(Isa isa);

}  // namespace farthing
