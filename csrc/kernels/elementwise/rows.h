// The row-wise ops, written once in Lanes.
#pragma once

#include "core/lanes.h"
#include "core/vector_math.h"
#include "kernels/elementwise/elementwise.h"

namespace farthing::FARTHING_ISA {

inline void rms_norm_row(const float* x, const float* weight, float eps, int32_t width,
                         float* out) {
  Lanes squares = zero();
  each_lanes(width, [&](auto get, auto, int64_t column) {
    const Lanes v = get(x + column);  // absent columns are 0 and leave their lane as it is
    squares = fma(v, v, squares);
  });
  const float mean = sum(squares) / static_cast<float>(width);
  const Lanes inverse = broadcast(1.0f / __builtin_sqrtf(mean + eps));
  each_lanes(width, [&](auto get, auto put, int64_t column) {
    put(out + column, (get(x + column) * inverse) * get(weight + column));
  });
}

FARTHING_INLINE Lanes silu(Lanes x) {
  return x / (broadcast(1.0f) + exp(negative(x)));
}

FARTHING_INLINE Lanes gelu_tanh(Lanes x) {
  const Lanes factor = broadcast(0x1.988454p+0f);  // 2 sqrt(2 / pi)
  const Lanes cubic = broadcast(0x1.2444f2p-4f);   // that times 0.044715
  const Lanes twice = x * fma(x * x, cubic, factor);
  return x / (broadcast(1.0f) + exp(negative(twice)));
}

inline void gated_row(const float* gate, const float* up, Activation act, int32_t width,
                      float* out) {
  if (act == Activation::silu)
    each_lanes(width, [&](auto get, auto put, int64_t column) {
      put(out + column, silu(get(gate + column)) * get(up + column));
    });
  else
    each_lanes(width, [&](auto get, auto put, int64_t column) {
      put(out + column, gelu_tanh(get(gate + column)) * get(up + column));
    });
}

inline void add_row(const float* a, const float* b, int32_t width, float* out) {
  each_lanes(width, [&](auto get, auto put, int64_t column) {
    put(out + column, get(a + column) + get(b + column));
  });
}

inline void scale_row(const float* x, float factor, int32_t width, float* out) {
  each_lanes(width, [&](auto get, auto put, int64_t column) {
    put(out + column, get(x + column) * broadcast(factor));
  });
}

inline void softcap_row(const float* x, float cap, int32_t width, float* out) {
  each_lanes(width, [&](auto get, auto put, int64_t column) {
    put(out + column, broadcast(cap) * tanh(get(x + column) / broadcast(cap)));
  });
}

inline constexpr ElementwiseKernels kElementwise = {rms_norm_row, gated_row, add_row, scale_row,
                                                    softcap_row};

}  // namespace farthing::FARTHING_ISA
