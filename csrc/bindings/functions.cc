#include "bindings/isa_argument.h"
#include "bindings/numpy_arrays.h"
#include "bindings/registry.h"
#include "kernels/functions/functions.h"

#include <nanobind/stl/string.h>

namespace nb = nanobind;
using namespace farthing;

namespace {

template <class T>
auto array_function(void (*FunctionKernels::*member)(const T*, int64_t, T*)) {
  return [member](const std::string& isa, InArray<T, 1> x) {
    OutArray<T> out = new_array<T>({x.shape(0)});
    (function_kernels(isa_argument(isa)).*member)(x.data(), static_cast<int64_t>(x.shape(0)),
                                                  out.data());
    return out;
  };
}

}  // namespace

FARTHING_BIND(functions) {
  m.def("exp", array_function<float>(&FunctionKernels::exp), nb::arg("isa"), nb::arg("x"),
        ComputeGuard());
  m.def("log", array_function<float>(&FunctionKernels::log), nb::arg("isa"), nb::arg("x"),
        ComputeGuard());
  m.def("tanh", array_function<float>(&FunctionKernels::tanh), nb::arg("isa"), nb::arg("x"),
        ComputeGuard());
  m.def("exp_double", array_function<double>(&FunctionKernels::exp_double), nb::arg("isa"),
        nb::arg("x"), ComputeGuard());
  m.def("log_double", array_function<double>(&FunctionKernels::log_double), nb::arg("isa"),
        nb::arg("x"), ComputeGuard());
  m.def(
      "sin_cos_double",
      [](const std::string& isa, InArray<double, 1> x) {
        OutArray<double> sine = new_array<double>({x.shape(0)});
        OutArray<double> cosine = new_array<double>({x.shape(0)});
        function_kernels(isa_argument(isa))
            .sin_cos_double(x.data(), static_cast<int64_t>(x.shape(0)), sine.data(), cosine.data());
        return nb::make_tuple(sine, cosine);
      },
      nb::arg("isa"), nb::arg("x"), ComputeGuard());
}
