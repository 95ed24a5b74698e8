// Rotary position embedding (Su et al., "RoFormer", 2021, section 3.4.2), half-split pairing.
#pragma once

#include "core/double_math.h"
#include "core/lanes.h"

namespace farthing::FARTHING_ISA {

inline void rope_table(const int32_t* positions, int32_t rows, const double* inv_freq,
                       int32_t half_dim, double magnitude, float* cos, float* sin) {
  for (int32_t r = 0; r < rows; ++r) {
    const double position = static_cast<double>(positions[r]);
    float* row_cos = cos + static_cast<size_t>(r) * half_dim;
    float* row_sin = sin + static_cast<size_t>(r) * half_dim;
    for (int32_t i = 0; i < half_dim; ++i) {
      double s, c;
      sin_cos(position * inv_freq[i], s, c);
      row_cos[i] = static_cast<float>(c * magnitude);
      row_sin[i] = static_cast<float>(s * magnitude);
    }
  }
}

inline void rope_row(float* heads, int32_t num_heads, int32_t head_dim, const float* cos,
                     const float* sin, int32_t half_dim) {
  for (int32_t h = 0; h < num_heads; ++h) {
    float* first = heads + static_cast<size_t>(h) * head_dim;
    float* second = first + half_dim;
    each_lanes(half_dim, [&](auto get, auto put, int64_t i) {
      const Lanes a = get(first + i), b = get(second + i), c = get(cos + i), s = get(sin + i);
      put(first + i, fma(a, c, negative(b * s)));
      put(second + i, fma(b, c, a * s));
    });
  }
}

inline void rope_inverse_frequencies(double theta, int32_t dim, double* out) {
  const double log_theta = log(theta);
  for (int32_t i = 0; i < dim / 2; ++i) {
    const double power = static_cast<double>(2 * i) / static_cast<double>(dim);
    out[i] = exp(-(power * log_theta));
  }
}

}  // namespace farthing::FARTHING_ISA
