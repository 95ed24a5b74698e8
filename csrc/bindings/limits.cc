// What this machine can do at most: reading memory, multiply-adds in registers.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>

#include "bindings/isa_argument.h"
#include "bindings/registry.h"
#include "core/bandwidth.h"
#include "core/threads.h"
#include "kernels/limits/limits.h"

namespace nb = nanobind;
using namespace farthing;

namespace {

const LimitLoop& loop_named(const std::string& isa, const std::string& name) {
  const LimitLoops all = limit_loops(isa_argument(isa));
  for (int32_t i = 0; i < all.count; ++i)
    if (name == all.loops[i].name) return all.loops[i];
  throw std::invalid_argument("instruction set '" + isa + "' has no loop called '" + name + "'");
}

}  // namespace

FARTHING_BIND(limits) {
  m.def(
      "limit_loops",
      [](const std::string& isa) {
        const LimitLoops all = limit_loops(isa_argument(isa));
        nb::list list;
        for (int32_t i = 0; i < all.count; ++i) {
          nb::dict row;
          row["name"] = all.loops[i].name;
          row["integer"] = all.loops[i].integer;
          row["macs"] = all.loops[i].macs;
          row["sums"] = all.loops[i].sums;
          row["step"] = all.loops[i].step;
          row["sum_bits"] = all.loops[i].sum_bits;
          list.append(row);
        }
        return list;
      },
      nb::arg("isa"),
      "Loops of multiply-adds over registers: name, whether of int8 (else fp32), multiply-adds an "
      "iteration, and what their sums count.");
  m.def(
      "sum_limit_loop",
      [](const std::string& isa, const std::string& name, int64_t iterations) {
        if (iterations < 0 || iterations > kMaxLimitIterations)
          throw std::invalid_argument("iterations are out of range");
        return loop_named(isa, name).run(iterations);
      },
      nb::arg("isa"), nb::arg("name"), nb::arg("iterations"), ComputeGuard(),
      "The sum of all numbers the loop keeps, which tells that it computed.");
  m.def(
      "time_limit_loop",
      [](const std::string& isa, const std::string& name, std::shared_ptr<ThreadPool> pool,
         int64_t iterations, int32_t tiles) {
        const LimitLoop& loop = loop_named(isa, name);
        nb::gil_scoped_release release;
        return time_limit_loop(loop, *pool, iterations, tiles);
      },
      nb::arg("isa"), nb::arg("name"), nb::arg("pool"), nb::arg("iterations"),
      nb::arg("tiles"), "Seconds that the pool's threads need for `tiles` of `iterations` each.");
  nb::class_<ReadRegion>(m, "ReadRegion",
                         "Memory that the threads of a pool wrote, and read from end to end.")
      .def(
          "__init__",
          [](ReadRegion* self, size_t bytes, std::shared_ptr<ThreadPool> pool) {
            nb::gil_scoped_release release;
            new (self) ReadRegion(bytes, std::move(pool));
          },
          nb::arg("bytes"), nb::arg("pool"))
      .def_prop_ro("nbytes", &ReadRegion::bytes)
      .def("read", &ReadRegion::read, nb::call_guard<nb::gil_scoped_release>(),
           "Read it once; 10^9 bytes a second.");
}
