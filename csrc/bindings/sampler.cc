// Choosing the tokens of a batch of rows.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "bindings/numpy_arrays.h"
#include "bindings/registry.h"
#include "sampling/row_sampler.h"

namespace nb = nanobind;

namespace farthing {
namespace {

using Mask = std::optional<InArray<uint32_t, 1>>;

int32_t checked_width(const InArray<float, 2>& logits) {
  require(logits.shape(1) >= 1 && logits.shape(1) < (size_t{1} << 24),
          "logits must have from 1 below 2**24 columns");
  return static_cast<int32_t>(logits.shape(1));
}

const uint32_t* checked_mask(const Mask& mask, int32_t width) {
  if (!mask) return nullptr;
  require(mask->shape(0) == static_cast<size_t>((width + 31) / 32),
          "allowed needs one word for each 32 columns of logits");
  return mask->data();
}

OutArray<int32_t> draw(RowSampler& sampler, const InArray<float, 2>& logits,
                       const InArray<int32_t, 1>& rows, const InArray<float, 1>& temperatures,
                       const InArray<uint64_t, 1>& seeds, const InArray<uint32_t, 1>& choices,
                       const InArray<uint32_t, 1>& positions, const std::vector<Mask>& allowed) {
  const size_t count = rows.shape(0);
  require(temperatures.shape(0) == count && seeds.shape(0) == count &&
              choices.shape(0) == count && positions.shape(0) == count && allowed.size() == count,
          "every column needs one entry for each row");
  const int32_t width = checked_width(logits);
  std::vector<RowToDraw> list(count);
  for (size_t i = 0; i < count; ++i) {
    const int32_t row = rows.data()[i];
    require(row >= 0 && static_cast<size_t>(row) < logits.shape(0), "rows: not a row of logits");
    list[i] = {row, temperatures.data()[i],
               {seeds.data()[i], choices.data()[i], positions.data()[i]},
               checked_mask(allowed[i], width)};
  }
  OutArray<int32_t> tokens = new_array<int32_t>({count});
  const nb::gil_scoped_release release;
  sampler.draw(logits.data(), width, list, tokens.data());
  return tokens;
}

}  // namespace
}  // namespace farthing

FARTHING_BIND(sampler) {
  using namespace farthing;
  nb::class_<RowSampler>(m, "RowSampler")
      .def("__init__",
           [](RowSampler* self, std::shared_ptr<ThreadPool> pool) {
             new (self) RowSampler(std::move(pool), active_isa());
           },
           nb::arg("pool").none())
      .def("draw", &draw, nb::arg("logits"), nb::arg("rows"), nb::arg("temperatures"),
           nb::arg("seeds"), nb::arg("choices"), nb::arg("positions"), nb::arg("allowed"),
           "Tokens of rows `rows` of logits (any, vocab); -1 where a logit is NaN or none is "
           "finite, -2 where nothing is allowed. allowed: a packed bit mask or None for each.");
}
