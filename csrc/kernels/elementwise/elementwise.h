// Row-wise float ops: contract shared by every instruction set. Widths are arbitrary; nothing is
// read or written past them. `out` may be any of the inputs.
#pragma once

#include "core/isa.h"
#include "core/types.h"

namespace farthing {

enum class Activation : int32_t { silu, gelu_tanh };

struct ElementwiseKernels {
  // out = x / sqrt(mean(x^2) + eps) * weight. Sum of squares: lane i (of 16) takes columns i, i+16,
  // ... ascending by fma; lanes join by the fixed tree (8 apart, 4, 2, 1). Then, one rounding each:
  // inverse = 1 / sqrt(sum / width + eps), out = (x * inverse) * weight.
  void (*rms_norm_row)(const float* x, const float* weight, float eps, int32_t width, float* out);
  // out[i] = act(gate[i]) * up[i]
  //   silu       g / (1 + e^-g)
  //   gelu_tanh  g (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (g + 0.044715 g^3), computed as the same
  //              function g / (1 + e^(-2u)), which does not cancel where tanh is near -1
  void (*gated_row)(const float* gate, const float* up, Activation act, int32_t width, float* out);
  void (*add_row)(const float* a, const float* b, int32_t width, float* out);
  void (*scale_row)(const float* x, float factor, int32_t width, float* out);
  void (*softcap_row)(const float* x, float cap, int32_t width, float* out);  // cap*tanh(x/cap)
};
const ElementwiseKernels& elementwise_kernels(Isa isa);

}  // namespace farthing
