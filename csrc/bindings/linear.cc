// Matrix, and entries by which tests reach the linear kernels of a chosen instruction set.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "bindings/numpy_arrays.h"
#include "bindings/registry.h"
#include "core/isa.h"
#include "core/matrix.h"
#include "kernels/linear/layout.h"
#include "kernels/linear/linear.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace farthing {
namespace {

template <class T>
OutArray<T> filled_array(size_t rows, size_t cols, T fill) {
  OutArray<T> array = new_array<T>({rows, cols});
  std::fill(array.data(), array.data() + array.size(), fill);
  return array;
}

const LinearKernels& kernels_named(const std::string& name) {
  const std::optional<Isa> isa = parse_isa(name);
  if (!isa || !isa_supported(*isa))
    throw std::invalid_argument("instruction set '" + name + "' cannot run on this machine");
  return linear_kernels(*isa);
}

std::string sizes(size_t a, size_t b) { return std::to_string(a) + " and " + std::to_string(b); }

size_t padded_to(size_t cols, int32_t group) {
  if (cols > static_cast<size_t>(Matrix::kMostCols))
    throw std::invalid_argument("x has at most " + std::to_string(Matrix::kMostCols) +
                                " columns, got " + std::to_string(cols));
  return static_cast<size_t>(padded_cols(static_cast<int32_t>(cols), group));
}

struct Quantized {
  size_t rows, cols, padded, stride;
  int32_t group;
  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<int32_t> sums;

  Quantized(const LinearKernels& kernels, const float* x, size_t rows_, size_t cols_,
            int32_t group_)
      : rows(rows_), cols(cols_), padded(padded_to(cols_, group_)),
        stride((padded + 63) / 64 * 64 + 64), group(group_), codes(rows * stride),
        scales(rows * (padded / group)), sums(rows * (padded / kSumRun)) {
    for (size_t t = 0; t < rows; ++t)
      kernels.quantize_row(x + t * cols, static_cast<int32_t>(cols), group, &codes[t * stride],
                           &scales[t * (padded / group)], &sums[t * (padded / kSumRun)]);
  }
};

// One call of the kernel: row blocks [0] to [1] of the matrix, rows [2] to [3] of x.
using Split = std::tuple<int32_t, int32_t, int32_t, int32_t>;

OutArray<float> linear(const Matrix& matrix, InArray<float, 2> x, const std::string& isa,
                       std::optional<InArray<float, 1>> bias, std::optional<InArray<float, 2>> add,
                       std::optional<std::vector<Split>> splits, bool in_place, size_t padding) {
  const LinearKernels& kernels = kernels_named(isa);
  const size_t tokens = x.shape(0), cols = x.shape(1), rows = static_cast<size_t>(matrix.rows());
  if (cols != static_cast<size_t>(matrix.cols()))
    throw std::invalid_argument("columns of x and of the matrix differ: " +
                                sizes(cols, static_cast<size_t>(matrix.cols())));
  if (bias && bias->shape(0) != rows)
    throw std::invalid_argument("bias and matrix rows differ: " + sizes(bias->shape(0), rows));
  if (add && (add->shape(0) != tokens || add->shape(1) != rows))
    throw std::invalid_argument("add and result differ in shape");
  const int32_t last = extent_of(tokens);
  if (!splits) splits = {{0, matrix.row_blocks(), 0, last}};
  for (const auto& [b0, b1, t0, t1] : *splits)
    if (b0 < 0 || b1 > matrix.row_blocks() || t0 < 0 || t1 > last)
      throw std::invalid_argument("a split reaches outside the result");

  const size_t stride = checked_sum(rows, padding);
  OutArray<float> out = filled_array(tokens, stride, std::numeric_limits<float>::quiet_NaN());
  std::vector<float> added;
  const float* add_data = nullptr;
  if (add) {
    if (!in_place) added.resize(tokens * stride);
    float* to = in_place ? out.data() : added.data();
    for (size_t t = 0; t < tokens; ++t)
      std::memcpy(to + t * stride, add->data() + t * rows, rows * sizeof(float));
    add_data = to;
  }
  const int32_t group = activation_group(matrix.scheme());
  std::optional<Quantized> q;
  Activations a{};
  a.cols = static_cast<int32_t>(cols);
  if (group == 0) {
    a.values = x.data();
  } else {
    q.emplace(kernels, x.data(), tokens, cols, group);
    a.codes = q->codes.data();
    a.scales = q->scales.data();
    a.sums = q->sums.data();
    a.group = group;
    a.code_stride = q->stride;
  }
  nb::gil_scoped_release release;
  for (const auto& [b0, b1, t0, t1] : *splits)
    kernels.linear(matrix.view(), b0, b1, a, t0, t1, bias ? bias->data() : nullptr, add_data,
                   out.data(), stride);
  return out;
}

nb::tuple quantize_rows(InArray<float, 2> x, int32_t group, const std::string& isa) {
  const LinearKernels& kernels = kernels_named(isa);
  const size_t rows = x.shape(0), cols = x.shape(1);
  if (group != 16 && group != 32 && group != 64 && group != 128 && group != 256)
    throw std::invalid_argument("group must be 16, 32, 64, 128 or 256, not " +
                                std::to_string(group));
  const size_t padded = padded_to(cols, group);
  const size_t groups = padded / static_cast<size_t>(group), runs = padded / kSumRun;
  OutArray<int8_t> codes = filled_array<int8_t>(rows, padded, 0);
  OutArray<float> scales = filled_array<float>(rows, groups, 0.0f);
  OutArray<int32_t> sums = filled_array<int32_t>(rows, runs, 0);
  for (size_t t = 0; t < rows; ++t)
    kernels.quantize_row(x.data() + t * cols, static_cast<int32_t>(cols), group,
                         codes.data() + t * padded, scales.data() + t * groups,
                         sums.data() + t * runs);
  return nb::make_tuple(codes, scales, sums);
}

OutArray<float> dequantize(const Matrix& matrix, int64_t first, int64_t count,
                           std::optional<std::string> isa) {
  matrix.check_rows(first, count);
  const LinearKernels& kernels = isa ? kernels_named(*isa) : linear_kernels(active_isa());
  const size_t cols = static_cast<size_t>(matrix.cols());
  OutArray<float> out = filled_array(static_cast<size_t>(count), cols, 0.0f);
  nb::gil_scoped_release release;
  for (int64_t i = 0; i < count; ++i)
    kernels.dequantize_row(matrix.view(), static_cast<int32_t>(first + i),
                           out.data() + static_cast<size_t>(i) * cols);
  return out;
}

using Codebook = InArray<int8_t, 1>;

Matrix::Codebook levels(const std::optional<Codebook>& codebook) {
  if (!codebook) return std::nullopt;
  if (codebook->shape(0) != 16)
    throw std::invalid_argument("a codebook has 16 values, not " +
                                std::to_string(codebook->shape(0)));
  std::array<int8_t, 16> values{};
  std::copy_n(codebook->data(), 16, values.begin());
  return values;
}

void pack_arrays(Matrix& self, int64_t first_row, InArray<uint8_t, 2> codes,
                 InArray<uint16_t, 2> scales, std::optional<InArray<uint16_t, 2>> minimums) {
  const size_t rows = codes.shape(0), cols = static_cast<size_t>(self.cols());
  const size_t groups = static_cast<size_t>(self.groups());
  const auto expect = [&](const char* what, size_t a, size_t b, size_t right) {
    if (a != rows || b != right)
      throw std::invalid_argument(std::string(what) + " must be (" + std::to_string(rows) + ", " +
                                  std::to_string(right) + "), not (" + std::to_string(a) + ", " +
                                  std::to_string(b) + ")");
  };
  expect("codes", rows, codes.shape(1), cols);
  expect("scales", scales.shape(0), scales.shape(1), groups);
  if (minimums) expect("minimums", minimums->shape(0), minimums->shape(1), groups);
  nb::gil_scoped_release release;
  self.pack_codes(first_row, static_cast<int64_t>(rows), codes.data(), scales.data(),
                  minimums ? minimums->data() : nullptr);
}

Matrix from_packed(const std::string& scheme, int32_t rows, int32_t cols,
                   InArray<uint8_t, 1> packed, std::optional<Codebook> codebook) {
  const size_t bytes = packed.shape(0);
  std::shared_ptr<const uint8_t> memory(packed.data(), [packed](const uint8_t*) {});
  return Matrix(parse_scheme(scheme), rows, cols, levels(codebook), std::move(memory), bytes);
}

nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>> packed_bytes(nb::object self) {
  const Matrix& matrix = nb::cast<const Matrix&>(self);
  return {matrix.data(), {matrix.nbytes()}, self};
}

nb::list schemes() {
  nb::list list;
  for (int i = 0; i < kNumSchemes; ++i) {
    const SchemeInfo& info = scheme_info(static_cast<Scheme>(i));
    nb::dict row;
    const SchemeTraits& traits = scheme_traits(info.scheme);
    row["name"] = info.name;
    row["alias"] = info.alias == nullptr ? nb::none() : nb::object(nb::str(info.alias));
    row["block_cols"] = info.block_cols;
    row["block_bytes"] = info.block_bytes;
    row["bits"] = traits.element_bytes != 0 ? 8 * traits.element_bytes : traits.code_bits;
    row["group"] = traits.sub_cols != 0          ? traits.sub_cols
                   : traits.group == kWholeRow ? 0
                                               : traits.group;
    row["scale_levels"] = traits.group == 0 ? 0 : traits.sub_cols == 0 ? 1 : 2;
    row["minimum"] = traits.minimum;
    row["activation_group"] = traits.activation_group;
    row["codebook"] = info.codebook == nullptr
                          ? nb::none()
                          : nb::object(nb::cast(std::vector<int>(info.codebook,
                                                                 info.codebook + 16)));
    list.append(row);
  }
  return list;
}

}  // namespace

FARTHING_BIND(linear) {
  nb::class_<Matrix>(m, "Matrix",
                     "A weight matrix (rows, cols) in the packed layout, zero until packed.")
      .def(
          "__init__",
          [](Matrix* self, const std::string& scheme, int32_t rows, int32_t cols,
             std::optional<Codebook> codebook) {
            new (self) Matrix(parse_scheme(scheme), rows, cols, levels(codebook));
          },
          "scheme"_a, "rows"_a, "cols"_a, "codebook"_a = nb::none())
      .def_static("from_packed", &from_packed, "scheme"_a, "rows"_a, "cols"_a, "packed"_a,
                  "codebook"_a = nb::none(),
                  "A matrix of what packed_bytes() gave, of which nothing is copied: the array is "
                  "kept alive. Raises ValueError for a length or an alignment (64 bytes) that is "
                  "not the layout's.")
      .def(
          "pack",
          [](Matrix& self, int64_t first_row, InBytes source) {
            nb::gil_scoped_release release;
            return self.pack(first_row, source.data(), source.size());
          },
          "first_row"_a, "source"_a, ComputeGuard(),
          "Pack checkpoint bytes into rows first_row.. and return how many rows they were. Threads "
          "may pack disjoint rows at once. Raises ValueError for sizes that do not fit.")
      .def("pack_codes", &pack_arrays, "first_row"_a, "codes"_a, "scales"_a,
           "minimums"_a = nb::none(), ComputeGuard(),
           "Pack codes (n, cols) and the bits of fp16 scales and minimums (n, groups) into rows "
           "first_row... Symmetric codes have the zero point 2^(bits - 1). Raises ValueError for "
           "sizes that do not fit and codes of more bits.")
      .def("packed_bytes", &packed_bytes,
           "The packed memory (nbytes), read-only and not copied; nothing may be packed while it is "
           "in use.")
      .def(
          "fill_packed",
          [](Matrix& self, size_t offset, InArray<uint8_t, 1> packed) {
            nb::gil_scoped_release release;
            self.fill_packed(offset, packed.data(), packed.shape(0));
          },
          "offset"_a, "packed"_a,
          "Copy a part of what packed_bytes() gave to its place in this matrix. Threads may fill "
          "disjoint parts at once. Raises ValueError for bytes that are not within it.")
      .def(
          "first_nonfinite",
          [](const Matrix& self) {
            nb::gil_scoped_release release;
            return first_nonfinite(self.view());
          },
          "(row, column) of a weight, or of the group of a scale or minimum, that is a NaN or an "
          "infinity; None if all are finite.")
      .def("dequantize", &dequantize, "first"_a, "count"_a, "isa"_a = nb::none(),
           ComputeGuard(),
           "Rows first.. as float32 (count, cols), bit for bit the checkpoint format's values.")
      .def_prop_ro("scheme", [](const Matrix& self) { return scheme_info(self.scheme()).name; })
      .def_prop_ro("rows", &Matrix::rows)
      .def_prop_ro("cols", &Matrix::cols)
      .def_prop_ro("row_blocks", &Matrix::row_blocks)
      .def_prop_ro("nbytes", &Matrix::nbytes)
      .def_prop_ro(
          "activation_group",
          [](const Matrix& self) { return activation_group(self.scheme()); },
          "Columns that share a scale when activations become int8; 0: they stay float32.");

  m.def(
      "row_block_bytes",
      [](const std::string& scheme, int32_t cols) {
        return Matrix::row_block_bytes(parse_scheme(scheme), cols);
      },
      "scheme"_a, "cols"_a,
      "Packed bytes of 16 rows of a matrix. Raises ValueError where the scheme has no such "
      "columns.");
  m.def("schemes", &schemes,
        "Weight schemes the kernels serve: name, alias, checkpoint block (0: in no checkpoint), bits "
        "of a code, group (columns that share a scale; 0: a row), scale levels, minimum, activation "
        "group (0: floats) and codebook.");
  m.def(
      "first_nonfinite",
      [](const std::string& name, InBytes source) -> std::optional<size_t> {
        const Scheme scheme = parse_scheme(name);
        const size_t block = static_cast<size_t>(scheme_info(scheme).block_bytes);
        if (block == 0) throw std::invalid_argument(name + " is the format of no checkpoint");
        if (source.size() % block != 0)
          throw std::invalid_argument(std::to_string(source.size()) +
                                      " bytes are not whole blocks of " + std::to_string(block));
        nb::gil_scoped_release release;
        const size_t at = first_nonfinite(scheme, source.data(), source.size());
        return at == source.size() ? std::nullopt : std::optional<size_t>(at);
      },
      "scheme"_a, "source"_a,
      "Byte of source, checkpoint bytes of a scheme, at which the first NaN or infinity starts, of "
      "weights or of scales and minimums; None if all are finite.");
  m.def("linear", &linear, "matrix"_a, "x"_a, "isa"_a, nb::kw_only(), "bias"_a = nb::none(),
        "add"_a = nb::none(), "splits"_a = nb::none(), "in_place"_a = false, "padding"_a = 0,
        ComputeGuard(),
        "x (T, cols) @ matrix.T (+ bias) (+ add) -> (T, rows + padding), by the kernels of one "
        "instruction set. splits: (block_begin, block_end, row_begin, row_end) per kernel call; "
        "what no call writes stays NaN. in_place: add lies in the result's memory.");
  m.def("quantize_rows", &quantize_rows, "x"_a, "group"_a, "isa"_a, ComputeGuard(),
        "x (T, cols) -> int8 codes (T, padded), scales (T, padded / group), sums (T, padded / 16). "
        "padded is cols filled up to whole groups and whole 32s; what is filled up is zero.");
}

}  // namespace farthing
