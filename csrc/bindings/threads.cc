// The thread team, and what it costs.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings/registry.h"
#include "core/team_timing.h"
#include "core/threads.h"

namespace nb = nanobind;

FARTHING_BIND(threads) {
  using namespace farthing;
  nb::class_<ThreadPool>(m, "ThreadPool",
                         "Threads that play passes together, the caller's included. Of more threads "
                         "than cpus only that many are awake at a time.")
      .def(nb::init<int, int>(), nb::arg("num_threads"), nb::arg("cpus"))
      .def_prop_ro("num_threads", &ThreadPool::num_threads)
      .def_prop_ro("cpus", &ThreadPool::cpus)
      .def_prop_ro("asleep", &ThreadPool::asleep,
                   "Threads besides the caller's that sleep and use no CPU.");
  m.def("barrier_seconds", &barrier_seconds, nb::arg("pool"), nb::arg("rounds"),
        nb::call_guard<nb::gil_scoped_release>(),
        "Seconds from the end of the last tile of a stage to the start of the last of the next, "
        "with one tile for each thread that has a CPU; one value for each of rounds barriers.");
  m.def("start_seconds", &start_seconds, nb::arg("pool"), nb::arg("rounds"), nb::arg("idle"),
        nb::call_guard<nb::gil_scoped_release>(),
        "Seconds from the start of a run to the start of its last thread, with idle seconds "
        "without work before it; one value for each of rounds runs.");
}
