#include "kernels/experts/experts.h"

#include "bindings/isa_argument.h"
#include "bindings/numpy_arrays.h"
#include "bindings/registry.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <tuple>

namespace nb = nanobind;
using namespace farthing;

FARTHING_BIND(experts) {
  m.def(
      "route",
      [](const std::string& isa, InArray<float, 2> logits, int32_t top_k, bool normalize) {
        require(top_k >= 1 && static_cast<size_t>(top_k) <= logits.shape(1),
                "top_k must be from 1 to the number of experts");
        const ExpertKernels& k = expert_kernels(isa_argument(isa));
        const size_t each = static_cast<size_t>(top_k);
        OutArray<int32_t> chosen = new_array<int32_t>({logits.shape(0), each});
        OutArray<float> weights = new_array<float>({logits.shape(0), each});
        for (size_t r = logits.shape(0); r-- > 0;)
          k.route_row(logits.data() + r * logits.shape(1), extent_of(logits.shape(1)),
                      top_k, normalize, chosen.data() + r * each, weights.data() + r * each);
        return std::tuple{chosen, weights};
      },
      nb::arg("isa"), nb::arg("logits"), nb::arg("top_k"), nb::arg("normalize"), ComputeGuard());
  m.def(
      "combine",
      [](const std::string& isa, InArray<float, 2> y, InArray<int32_t, 1> rows,
         InArray<float, 1> weights, std::optional<InArray<float, 1>> add) {
        require(rows.shape(0) == weights.shape(0), "rows and weights must match");
        require(!add || add->shape(0) == y.shape(1), "add must be as wide as y");
        for (size_t i = 0; i < rows.shape(0); ++i)
          require(rows.data()[i] >= 0 && static_cast<size_t>(rows.data()[i]) < y.shape(0),
                  "rows must be rows of y");
        const ExpertKernels& k = expert_kernels(isa_argument(isa));
        OutArray<float> out = new_array<float>({y.shape(1)});
        k.combine_row(y.data(), rows.data(), weights.data(), extent_of(rows.shape(0)),
                      extent_of(y.shape(1)), add ? add->data() : nullptr, out.data());
        return out;
      },
      nb::arg("isa"), nb::arg("y"), nb::arg("rows"), nb::arg("weights"),
      nb::arg("add") = nb::none(), ComputeGuard());
}
