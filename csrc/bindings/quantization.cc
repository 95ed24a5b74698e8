// Weights to codes and scales, some rows at a time.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "bindings/numpy_arrays.h"
#include "bindings/registry.h"
#include "quantization/rounding.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace farthing {
namespace {

constexpr int kMaxBits = 8;

nb::tuple round_weights(InArray<float, 2> values, int64_t group, const std::string& method,
                        int bits, bool minimum, std::optional<InArray<int8_t, 1>> codebook) {
  const size_t rows = values.shape(0), cols = values.shape(1);
  require(cols > 0, "there must be columns");
  require(group > 0, "group must be positive");
  const bool weighted = method == "weighted", squared = method == "mse";
  require(weighted || squared || method == "absmax",
          "method must be 'absmax', 'mse' or 'weighted'");
  require(bits >= 2 && bits <= kMaxBits, "bits must be from 2 to 8");
  if (codebook) {
    require(!minimum && bits == 4, "a codebook has 4 bits and no minimum");
    require(codebook->shape(0) == 16, "a codebook has 16 levels");
    const int8_t* levels = codebook->data();
    for (int i = 1; i < 16; ++i) require(levels[i - 1] < levels[i], "levels must ascend");
    require(levels[0] < 0 && levels[15] > 0, "levels must reach below and above zero");
  }
  const size_t width = std::min(static_cast<size_t>(group), cols);
  const size_t groups = (cols + width - 1) / width;
  auto codes = new_array<uint8_t>({rows, cols});
  auto scales = new_array<uint16_t>({rows, groups});
  std::optional<OutArray<uint16_t>> minimums;
  if (minimum) minimums = new_array<uint16_t>({rows, groups});
  const RoundingJob job{values.data(),
                        rows,
                        cols,
                        width,
                        weighted  ? RoundingMethod::weighted
                        : squared ? RoundingMethod::squared
                                  : RoundingMethod::range,
                        codes.data(),
                        scales.data(),
                        minimums ? minimums->data() : nullptr};
  size_t failed;
  {
    nb::gil_scoped_release release;
    failed = codebook ? round_codebook(job, codebook->data())
             : minimum ? round_affine(job, bits)
                       : round_symmetric(job, bits);
  }
  if (failed < rows)
    throw std::invalid_argument("row " + std::to_string(failed) +
                                ": its weights need a scale that does not fit fp16");
  return nb::make_tuple(codes, scales,
                        minimums ? nb::cast(*minimums) : nb::object(nb::none()));
}

}  // namespace

FARTHING_BIND(quantization) {
  m.def("round_weights", &round_weights, "values"_a, "group"_a, "method"_a, nb::kw_only(),
        "bits"_a, "minimum"_a = false, "codebook"_a = nb::none(), ComputeGuard(),
        "Finite float32 values (n, cols) to codes (n, cols) uint8, scales and minimums (n, groups) "
        "as the bits of fp16 (None without a minimum). method: 'absmax', a scale that clips "
        "nothing; 'mse', the least squared error found; 'weighted', the same, an error counting by "
        "the magnitude of its weight. Raises ValueError where a scale does "
        "not fit fp16, naming the row.");
}

}  // namespace farthing
