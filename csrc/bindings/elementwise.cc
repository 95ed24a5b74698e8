#include "kernels/elementwise/elementwise.h"

#include "bindings/isa_argument.h"
#include "bindings/numpy_arrays.h"
#include "bindings/registry.h"

#include <nanobind/stl/string.h>

namespace nb = nanobind;
using namespace farthing;

namespace {

using Rows = InArray<float, 2>;

int32_t width_of(const Rows& x) { return extent_of(x.shape(1)); }

// out[r] = row(x[r], out[r]) for each row, `out_width` wide. Last row first, so that a kernel that
// wrote past its row would spoil one that is finished.
template <class Row>
OutArray<float> each_row(const Rows& x, size_t out_width, Row row) {
  OutArray<float> out = new_array<float>({x.shape(0), out_width});
  for (size_t r = x.shape(0); r-- > 0;)
    row(x.data() + r * x.shape(1), out.data() + r * out_width);
  return out;
}

}  // namespace

FARTHING_BIND(elementwise) {
  m.def(
      "rms_norm",
      [](const std::string& isa, Rows x, InArray<float, 1> weight, float eps) {
        require(weight.shape(0) == x.shape(1), "weight must be as wide as x");
        const ElementwiseKernels& k = elementwise_kernels(isa_argument(isa));
        return each_row(x, x.shape(1), [&](const float* in, float* out) {
          k.rms_norm_row(in, weight.data(), eps, width_of(x), out);
        });
      },
      nb::arg("isa"), nb::arg("x"), nb::arg("weight"), nb::arg("eps"), ComputeGuard());
  m.def(
      "gated",
      [](const std::string& isa, Rows x, const std::string& activation) {
        require(activation == "silu" || activation == "gelu_tanh",
                "activation must be silu or gelu_tanh");
        require(x.shape(1) % 2 == 0, "x must hold gate and up side by side");
        const Activation act = activation == "silu" ? Activation::silu : Activation::gelu_tanh;
        const ElementwiseKernels& k = elementwise_kernels(isa_argument(isa));
        return each_row(x, x.shape(1) / 2, [&](const float* in, float* out) {
          k.gated_row(in, in + width_of(x) / 2, act, width_of(x) / 2, out);
        });
      },
      nb::arg("isa"), nb::arg("x"), nb::arg("activation"), ComputeGuard());
  m.def(
      "add",
      [](const std::string& isa, Rows a, Rows b) {
        require(a.shape(0) == b.shape(0) && a.shape(1) == b.shape(1), "a and b must match");
        const ElementwiseKernels& k = elementwise_kernels(isa_argument(isa));
        return each_row(a, a.shape(1), [&](const float* in, float* out) {
          k.add_row(in, b.data() + (in - a.data()), width_of(a), out);
        });
      },
      nb::arg("isa"), nb::arg("a"), nb::arg("b"), ComputeGuard());
  m.def(
      "scale",
      [](const std::string& isa, Rows x, float factor) {
        const ElementwiseKernels& k = elementwise_kernels(isa_argument(isa));
        return each_row(x, x.shape(1), [&](const float* in, float* out) {
          k.scale_row(in, factor, width_of(x), out);
        });
      },
      nb::arg("isa"), nb::arg("x"), nb::arg("factor"), ComputeGuard());
  m.def(
      "softcap",
      [](const std::string& isa, Rows x, float cap) {
        const ElementwiseKernels& k = elementwise_kernels(isa_argument(isa));
        return each_row(x, x.shape(1), [&](const float* in, float* out) {
          k.softcap_row(in, cap, width_of(x), out);
        });
      },
      nb::arg("isa"), nb::arg("x"), nb::arg("cap"), ComputeGuard());
}
