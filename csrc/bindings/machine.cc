// Facts about this machine, instruction sets and memory bandwidth, and a signal of it.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>

#include <new>
#include <string>
#include <vector>

#include "bindings/registry.h"
#include "core/bandwidth.h"
#include "core/bus_error.h"
#include "core/isa.h"
#include "core/memory_nodes.h"

namespace nb = nanobind;

namespace farthing {
namespace {

std::string interleaved_policy(const std::vector<int32_t>& nodes) {
  constexpr size_t kBytes = size_t{1} << 21;
  void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  const bool done = interleave_pages(data, kBytes, nodes);
  std::string policy = memory_policy(data);
  munmap(data, kBytes);
  return done ? policy : "refused, " + policy;
}

}  // namespace

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
  m.def("memory_nodes", &allowed_memory_nodes, nb::arg("status_file") = "/proc/self/status",
        "Memory nodes that the process may use, by the status file of one in /proc.");
  m.def("interleaved_policy", &interleaved_policy, nb::arg("nodes"),
        "What the system says of memory that is spread over the given nodes as weights are.");
  m.def(
      "explain_bus_errors", [](const std::string& message) { explain_bus_errors(message); },
      nb::arg("message"),
      "Let SIGBUS write the message to stderr before it ends the process, unless something else "
      "handles the signal.");
}

}  // namespace farthing
