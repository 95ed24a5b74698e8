// The functions over arrays, written once in Lanes.
#pragma once

#include "core/double_math.h"
#include "core/lanes.h"
#include "core/vector_math.h"
#include "kernels/functions/functions.h"

namespace farthing::FARTHING_ISA {

inline void exp_array(const float* x, int64_t count, float* out) {
  each_lanes(count, [&](auto get, auto put, int64_t i) { put(out + i, exp(get(x + i))); });
}
inline void log_array(const float* x, int64_t count, float* out) {
  each_lanes(count, [&](auto get, auto put, int64_t i) { put(out + i, log(get(x + i))); });
}
inline void tanh_array(const float* x, int64_t count, float* out) {
  each_lanes(count, [&](auto get, auto put, int64_t i) { put(out + i, tanh(get(x + i))); });
}
inline void exp_double_array(const double* x, int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = exp(x[i]);
}
inline void log_double_array(const double* x, int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = log(x[i]);
}
inline void sin_cos_double_array(const double* x, int64_t count, double* sine, double* cosine) {
  for (int64_t i = 0; i < count; ++i) {
    double s, c;
    sin_cos(x[i], s, c);
    sine[i] = s;
    cosine[i] = c;
  }
}

inline constexpr FunctionKernels kFunctions = {exp_array,        log_array,        tanh_array,
                                               exp_double_array, log_double_array,
                                               sin_cos_double_array};

}  // namespace farthing::FARTHING_ISA
