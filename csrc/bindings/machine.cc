// Facts about this machine, instruction sets and memory bandwidth, and a signal of it.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings/registry.h"
#include "core/bandwidth.h"
#include "core/bus_error.h"
#include "core/isa.h"

namespace nb = nanobind;

namespace farthing {

FARTHING_BIND(machine) {
  m.def(
      "isa", [] { return std::string(isa_name(active_isa())); },
      "The instruction set in force. Raises RuntimeError if FARTHING_ISA cannot run here.");
  m.def(
      "supported_isas",
      [] {
        std::vector<std::string> names;
        for (Isa isa : supported_isas()) names.emplace_back(isa_name(isa));
        return names;
      },
      "Instruction sets that CPU and operating system can run, best last.");
  m.def("read_bandwidth", &read_bandwidth, nb::arg("bytes"), nb::arg("threads"), nb::arg("repeats"),
        nb::call_guard<nb::gil_scoped_release>(),
        "Sequential read bandwidth, 10^9 bytes a second of each repeat.");
  m.def(
      "explain_bus_errors", [](const std::string& message) { explain_bus_errors(message); },
      nb::arg("message"),
      "Let SIGBUS write the message to stderr before it ends the process, unless something else "
      "handles the signal.");
}

}  // namespace farthing
