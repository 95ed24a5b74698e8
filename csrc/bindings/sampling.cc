#include "kernels/sampling/sampling.h"

#include "bindings/isa_argument.h"
#include "bindings/numpy_arrays.h"
#include "bindings/registry.h"

#include <nanobind/stl/string.h>

namespace nb = nanobind;
using namespace farthing;

namespace {

using Row = InArray<float, 1>;

int32_t width_of(const Row& x) { return static_cast<int32_t>(x.shape(0)); }

}  // namespace

FARTHING_BIND(sampling) {
  m.def(
      "argmax",
      [](const std::string& isa, Row logits) {
        return sampling_kernels(isa_argument(isa)).argmax(logits.data(), width_of(logits));
      },
      nb::arg("isa"), nb::arg("logits"), ComputeGuard());
  m.def(
      "sample",
      [](const std::string& isa, Row logits, float temperature, uint64_t seed, uint32_t choice,
         uint32_t position) {
        return sampling_kernels(isa_argument(isa))
            .sample(logits.data(), width_of(logits), temperature, seed, choice, position);
      },
      nb::arg("isa"), nb::arg("logits"), nb::arg("temperature"), nb::arg("seed"),
      nb::arg("choice"), nb::arg("position"), ComputeGuard());
  m.def(
      "log_sum_exp",
      [](const std::string& isa, Row logits) {
        return sampling_kernels(isa_argument(isa)).log_sum_exp(logits.data(), width_of(logits));
      },
      nb::arg("isa"), nb::arg("logits"), ComputeGuard());
  m.def(
      "gumbel",
      [](const std::string& isa, uint64_t seed, uint32_t choice, uint32_t position,
         uint32_t first_token, uint32_t count) {
        OutArray<float> out = new_array<float>({count});
        sampling_kernels(isa_argument(isa))
            .gumbel_row(seed, choice, position, first_token, static_cast<int32_t>(count),
                        out.data());
        return out;
      },
      nb::arg("isa"), nb::arg("seed"), nb::arg("choice"), nb::arg("position"),
      nb::arg("first_token"), nb::arg("count"), ComputeGuard());
  m.def(
      "philox",
      [](const std::string& isa, uint64_t key, InArray<uint32_t, 1> counter, uint32_t count) {
        require(counter.shape(0) == 4, "a counter has four words");
        OutArray<uint32_t> out = new_array<uint32_t>({count, 4});
        sampling_kernels(isa_argument(isa))
            .philox_rows(key, counter.data(), static_cast<int32_t>(count), out.data());
        return out;
      },
      nb::arg("isa"), nb::arg("key"), nb::arg("counter"), nb::arg("count"));
}
