// Weights to codes and scales, some rows at a time.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <string>

#include "bindings/isa_argument.h"
#include "bindings/numpy_arrays.h"
#include "bindings/registry.h"
#include "quantization/rounding.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace farthing {
namespace {

constexpr int kMaxBits = 8;

size_t columns_of(int64_t group) {
  require(group >= 0, "group must be positive, or 0 for the whole matrix");
  return static_cast<size_t>(group);
}

void check_bits(int bits) { require(bits >= 2 && bits <= kMaxBits, "bits must be from 2 to 8"); }

template <class T>
void check_levels(const InArray<T, 1>& levels, int bits) {
  require(bits == 4, "a codebook has 4 bits");
  require(levels.shape(0) == 16, "a codebook has 16 levels");
  for (int i = 1; i < 16; ++i)
    require(levels.data()[i - 1] < levels.data()[i], "levels must ascend");
}

nb::tuple round_weights(InArray<float, 2> values, int64_t group, const std::string& method,
                        int bits, bool minimum, std::optional<InArray<int8_t, 1>> codebook,
                        std::optional<float> reach, const std::optional<std::string>& isa) {
  const RoundingKernels& kernels = rounding_kernels(isa ? isa_argument(*isa) : active_isa());
  const size_t rows = values.shape(0), cols = values.shape(1);
  require(cols > 0, "there must be columns");
  const bool weighted = method == "weighted", squared = method == "mse";
  require(weighted || squared || method == "absmax",
          "method must be 'absmax', 'mse' or 'weighted'");
  check_bits(bits);
  if (codebook) {
    require(!minimum, "a codebook has no minimum");
    check_levels(*codebook, bits);
    const int8_t* levels = codebook->data();
    require(reach || (levels[0] < 0 && levels[15] > 0), "levels must reach below and above zero");
    if (!reach) reach = static_cast<float>(std::min(-levels[0], +levels[15]));
    require(*reach > 0, "reach must be positive");
  }
  RoundingJob job{values.data(), rows, cols, std::min(columns_of(group), cols), {}, {}, {}, {}};
  require(job.group != kWholeMatrix || rows > 0, "there must be rows");
  job.method = weighted  ? RoundingMethod::weighted
               : squared ? RoundingMethod::squared
                         : RoundingMethod::range;
  const size_t scale_rows = job.group == kWholeMatrix ? 1 : rows;
  auto codes = new_array<uint8_t>({rows, cols});
  auto scales = new_array<uint16_t>({scale_rows, job.groups()});
  std::optional<OutArray<uint16_t>> minimums;
  if (minimum) minimums = new_array<uint16_t>({scale_rows, job.groups()});
  job.codes = codes.data();
  job.scales = scales.data();
  job.minimums = minimums ? minimums->data() : nullptr;
  size_t failed;
  {
    nb::gil_scoped_release release;
    failed = codebook  ? kernels.codebook(job, codebook->data(), *reach)
             : minimum ? kernels.affine(job, bits)
                       : kernels.symmetric(job, bits);
  }
  if (failed < rows)
    throw std::invalid_argument("row " + std::to_string(failed) +
                                ": its weights need a scale that does not fit fp16");
  return nb::make_tuple(codes, scales,
                        minimums ? nb::cast(*minimums) : nb::object(nb::none()));
}

using Numbers = InArray<float, 2>;
using Levels = std::optional<InArray<float, 1>>;

CodedMatrix coded(size_t rows, size_t cols, int64_t group, int bits, const Numbers& scales,
                  const std::optional<Numbers>& minimums, const Levels& levels) {
  require(cols > 0, "there must be columns");
  check_bits(bits);
  if (levels) {
    require(!minimums, "a codebook has no minimum");
    check_levels(*levels, bits);
  }
  const CodedMatrix matrix{rows,
                           cols,
                           std::min(columns_of(group), cols),
                           bits,
                           scales.data(),
                           minimums ? minimums->data() : nullptr,
                           levels ? levels->data() : nullptr};
  const size_t scale_rows = matrix.group == kWholeMatrix ? 1 : rows;
  const auto fits = [&](const Numbers& numbers) {
    return numbers.shape(0) == scale_rows && numbers.shape(1) == matrix.groups();
  };
  require(fits(scales) && (!minimums || fits(*minimums)),
          "scales and minimums must be (rows, groups), or (1, 1) for a whole matrix");
  return matrix;
}

OutArray<uint8_t> nearest_codes_of(InArray<float, 2> values, Numbers scales, int64_t group,
                                   int bits, std::optional<Numbers> minimums, Levels levels) {
  const size_t rows = values.shape(0), cols = values.shape(1);
  const CodedMatrix matrix = coded(rows, cols, group, bits, scales, minimums, levels);
  auto codes = new_array<uint8_t>({rows, cols});
  nb::gil_scoped_release release;
  nearest_codes(matrix, values.data(), codes.data());
  return codes;
}

nb::tuple squared_error_of(InArray<float, 2> values, InArray<uint8_t, 2> codes, Numbers scales,
                           int64_t group, int bits, std::optional<Numbers> minimums,
                           Levels levels) {
  const size_t rows = values.shape(0), cols = values.shape(1);
  require(codes.shape(0) == rows && codes.shape(1) == cols, "values and codes differ in shape");
  const CodedMatrix matrix = coded(rows, cols, group, bits, scales, minimums, levels);
  SquaredSums sums;
  {
    nb::gil_scoped_release release;
    sums = squared_error(matrix, values.data(), codes.data());
  }
  return nb::make_tuple(sums.error, sums.values);
}

nb::tuple value_range(InArray<float, 2> values) {
  require(values.size() > 0, "there must be values");
  Range range;
  {
    nb::gil_scoped_release release;
    range = range_of(values.data(), values.size());
  }
  return nb::make_tuple(range.low, range.high);
}

OutArray<double> level_sums(InArray<float, 2> values, Numbers scales, int64_t group,
                            bool by_magnitude) {
  const size_t rows = values.shape(0), cols = values.shape(1);
  const CodedMatrix m = coded(rows, cols, group, kMaxBits, scales, std::nullopt, std::nullopt);
  auto sums = new_array<double>({kLevelBins, 3});
  std::fill_n(sums.data(), kLevelBins * 3, 0.0);
  nb::gil_scoped_release release;
  add_level_sums(values.data(), m.scales, rows, cols, m.group, by_magnitude, sums.data());
  return sums;
}

}  // namespace

FARTHING_BIND(quantization) {
  m.def("round_weights", &round_weights, "values"_a, "group"_a, "method"_a, nb::kw_only(),
        "bits"_a, "minimum"_a = false, "codebook"_a = nb::none(), "reach"_a = nb::none(),
        "isa"_a = nb::none(), ComputeGuard(),
        "Finite float32 values (n, cols) to codes (n, cols) uint8, scales and minimums (n, groups) "
        "as the bits of fp16 (None without a minimum); with group 0 the matrix has one of each, "
        "(1, 1). method: 'absmax', a scale that clips nothing; 'mse', the least squared error "
        "found; 'weighted', the same, an error counting by the magnitude of its weight. reach: the "
        "level that 'absmax' gives the largest weight, by default the nearer end of the codebook. "
        "isa: the instruction set, by default the one in force. Raises ValueError where a scale "
        "does not fit fp16, naming the row.");
  m.def("nearest_codes", &nearest_codes_of, "values"_a, "scales"_a, "group"_a, nb::kw_only(),
        "bits"_a, "minimums"_a = nb::none(), "levels"_a = nb::none(), ComputeGuard(),
        "The codes (n, cols) nearest to finite values (n, cols) for scales and minimums (n, groups), "
        "or (1, 1) with group 0; levels: 16 ascending ones instead of whole numbers.");
  m.def("squared_error", &squared_error_of, "values"_a, "codes"_a, "scales"_a, "group"_a,
        nb::kw_only(), "bits"_a, "minimums"_a = nb::none(), "levels"_a = nb::none(),
        ComputeGuard(),
        "Sums in double of squared differences between values and what their codes stand for in "
        "float32, and of squared values; arguments as for nearest_codes.");
  m.def("value_range", &value_range, "values"_a, ComputeGuard(),
        "The least and the largest of finite values.");
  m.def("level_sums", &level_sums, "values"_a, "scales"_a, "group"_a, "by_magnitude"_a,
        ComputeGuard(),
        "What a codebook is chosen by: (509, 3) float64 sums of weight, weight * t and weight * t^2 "
        "over t = value / scale in bins of a half from -127 to 127. weight: scale squared, with "
        "by_magnitude times |value|.");
}

}  // namespace farthing
