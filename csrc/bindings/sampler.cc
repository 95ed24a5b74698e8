// Choosing the tokens of a batch of rows.
#include <nanobind/ndarray.h>

#include <cstdint>

#include "bindings/registry.h"
#include "core/float_mode.h"
#include "kernels/sampling/sampling.h"

namespace nb = nanobind;

namespace farthing {
namespace {

using Logits = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using LogitRow = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::ndarray<nb::numpy, int32_t, nb::ndim<1>> sample_rows(
    const Logits& logits, const Column<float>& temperatures, const Column<uint64_t>& seeds,
    const Column<uint32_t>& choices, const Column<uint32_t>& positions) {
  const size_t rows = logits.shape(0);
  if (temperatures.shape(0) != rows || seeds.shape(0) != rows || choices.shape(0) != rows ||
      positions.shape(0) != rows)
    throw nb::value_error("every column needs one entry for each row of logits");
  const int32_t width = static_cast<int32_t>(logits.shape(1));
  auto* tokens = new int32_t[rows];
  nb::capsule owner(tokens, [](void* p) noexcept { delete[] static_cast<int32_t*>(p); });
  {
    const nb::gil_scoped_release release;
    const FloatMode mode;
    const SamplingKernels& kernels = sampling_kernels(active_isa());
    for (size_t i = 0; i < rows; ++i) {
      const float* row = logits.data() + i * static_cast<size_t>(width);
      const float temperature = temperatures.data()[i];
      tokens[i] = temperature == 0.0f
                      ? kernels.argmax(row, width)
                      : kernels.sample(row, width, temperature, seeds.data()[i], choices.data()[i],
                                       positions.data()[i]);
    }
  }
  return nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>(tokens, {rows}, owner);
}

float log_sum_exp(const LogitRow& logits) {
  const nb::gil_scoped_release release;
  const FloatMode mode;
  return sampling_kernels(active_isa())
      .log_sum_exp(logits.data(), static_cast<int32_t>(logits.shape(0)));
}

}  // namespace
}  // namespace farthing

FARTHING_BIND(sampler) {
  m.def("sample_rows", &farthing::sample_rows, nb::arg("logits"), nb::arg("temperatures"),
        nb::arg("seeds"), nb::arg("choices"), nb::arg("positions"));
  m.def("log_sum_exp", &farthing::log_sum_exp, nb::arg("logits"));
}
