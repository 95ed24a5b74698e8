// FloatMode as a context manager, for the arithmetic that Python does itself.
#include "core/float_mode.h"

#include <nanobind/nanobind.h>

#include <optional>

#include "bindings/registry.h"

namespace nb = nanobind;

namespace farthing {
namespace {

struct FloatModeContext {
  std::optional<FloatMode> mode;
};

}  // namespace
}  // namespace farthing

FARTHING_BIND(float_mode) {
  using farthing::FloatModeContext;
  nb::class_<FloatModeContext>(m, "FloatMode",
                               "with FloatMode(): the calling thread rounds to nearest and keeps "
                               "denormals, as the kernels do; its own mode comes back after.")
      .def(nb::init<>())
      .def("__enter__", [](FloatModeContext& self) { self.mode.emplace(); })
      .def("__exit__",
           [](FloatModeContext& self, nb::handle, nb::handle, nb::handle) { self.mode.reset(); },
           nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none());
}
