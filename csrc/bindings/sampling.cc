// The sampling kernels of each instruction set, for tests and `farthing doctor`.
#include "kernels/sampling/sampling.h"

#include "bindings/isa_argument.h"
#include "bindings/numpy_arrays.h"
#include "bindings/registry.h"
#include "sampling/scratch.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

namespace nb = nanobind;
using namespace farthing;

namespace {

using Row = InArray<float, 1>;
using Mask = std::optional<InArray<uint32_t, 1>>;
using Edits = std::vector<std::tuple<int32_t, float>>;

int32_t width_of(const Row& x) {
  require(x.shape(0) >= 1, "a row of logits has one column at least");
  return extent_of(x.shape(0));
}

struct RowArguments {
  std::vector<TokenValue> edits;
  LogitRow row;
  RowArguments(const Row& logits, const Mask& allowed, const Edits& given) {
    row = {logits.data(), width_of(logits)};
    if (allowed) {
      require(allowed->shape(0) == (logits.shape(0) + 31) / 32,
              "allowed needs one word for each 32 columns");
      row.allowed = allowed->data();
    }
    int32_t last = -1;
    for (const auto& [token, value] : given) {
      require(token > last && token < row.width, "edits must ascend and be below the width");
      edits.push_back({last = token, value});
    }
    row.edits = edits.data();
    row.num_edits = static_cast<int32_t>(edits.size());
  }
};

Filters filters_of(float temperature, int32_t top_k, double top_p, float min_p, double typical_p) {
  Filters f;
  f.temperature = temperature;
  f.top_k = top_k;
  f.top_p = top_p;
  f.min_p = min_p;
  f.typical_p = typical_p;
  return f;
}

}  // namespace

FARTHING_BIND(sampling) {
  m.def(
      "choose",
      [](const std::string& isa, Row logits, float temperature, uint64_t seed, uint32_t choice,
         uint32_t position, int32_t top_k, double top_p, float min_p, double typical_p,
         const Mask& allowed, const Edits& edits) {
        const RowArguments arguments(logits, allowed, edits);
        const OwnedScratch scratch(arguments.row.width);
        return sampling_kernels(isa_argument(isa))
            .choose(arguments.row, filters_of(temperature, top_k, top_p, min_p, typical_p),
                    {seed, choice, position}, scratch.view());
      },
      nb::arg("isa"), nb::arg("logits"), nb::arg("temperature"), nb::arg("seed") = 0,
      nb::arg("choice") = 0, nb::arg("position") = 0, nb::arg("top_k") = 0, nb::arg("top_p") = 1.0,
      nb::arg("min_p") = 0.0f, nb::arg("typical_p") = 1.0, nb::arg("allowed") = nb::none(),
      nb::arg("edits") = Edits(), ComputeGuard());
  m.def(
      "greedy_by_pieces",
      [](const std::string& isa, Row logits, const std::vector<int32_t>& ends, bool apart) {
        const SamplingKernels& kernels = sampling_kernels(isa_argument(isa));
        const int32_t width = width_of(logits);
        RowBest best;
        int32_t begin = 0;
        for (const int32_t end : ends) {
          require(end >= begin && end <= width, "ends must ascend, up to the width");
          RowBest piece = apart ? RowBest{} : best;
          kernels.see_columns(logits.data() + begin, end - begin, begin, piece);
          if (apart)
            join(best, piece);
          else
            best = piece;
          begin = end;
        }
        return greedy_token(best);
      },
      nb::arg("isa"), nb::arg("logits"), nb::arg("ends"), nb::arg("apart"), ComputeGuard(),
      "What choose gives a greedy row, from the pieces that end at `ends`: seen one after the "
      "other, or apart and then joined.");
  m.def(
      "kept_tokens",
      [](const std::string& isa, Row logits, float temperature, int32_t top_k, double top_p,
         float min_p, double typical_p, const Mask& allowed, const Edits& edits) {
        require(temperature > 0.0f, "temperature must be above 0");
        const RowArguments arguments(logits, allowed, edits);
        const OwnedScratch scratch(arguments.row.width);
        const int32_t n =
            sampling_kernels(isa_argument(isa))
                .keep(arguments.row, filters_of(temperature, top_k, top_p, min_p, typical_p),
                      scratch.view());
        OutArray<int32_t> tokens = new_array<int32_t>({static_cast<size_t>(n)});
        for (int32_t i = 0; i < n; ++i) tokens.data()[i] = scratch.view().candidates[i].token;
        std::sort(tokens.data(), tokens.data() + n);
        return tokens;
      },
      nb::arg("isa"), nb::arg("logits"), nb::arg("temperature"), nb::arg("top_k") = 0,
      nb::arg("top_p") = 1.0, nb::arg("min_p") = 0.0f, nb::arg("typical_p") = 1.0,
      nb::arg("allowed") = nb::none(), nb::arg("edits") = Edits(), ComputeGuard(),
      "Ids of the tokens that the filters leave, ascending.");
  m.def(
      "row_logprobs",
      [](const std::string& isa, Row logits, int32_t chosen, int32_t n) {
        const int32_t width = width_of(logits);
        require(chosen >= 0 && chosen < width, "chosen is not a column");
        require(n >= 0 && n <= width, "n must be from 0 to the width");
        const OwnedScratch scratch(width);
        std::vector<TokenValue> best(static_cast<size_t>(n));
        ChosenLogprob of_chosen{};
        if (!sampling_kernels(isa_argument(isa))
                 .logprobs(logits.data(), width, chosen, n, best.data(), &of_chosen,
                           scratch.view()))
          throw std::invalid_argument("a logit is NaN or the highest is not finite");
        Edits pairs;
        for (const TokenValue& b : best) pairs.emplace_back(b.token, b.value);
        return std::make_tuple(of_chosen.logprob, of_chosen.rank, pairs);
      },
      nb::arg("isa"), nb::arg("logits"), nb::arg("chosen"), nb::arg("n"), ComputeGuard(),
      "Log probability and rank of `chosen`, and the first n as (token, log probability).");
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
        const int32_t n = extent_of(count);
        OutArray<float> out = new_array<float>({count});
        sampling_kernels(isa_argument(isa))
            .gumbel_row({seed, choice, position}, first_token, n, out.data());
        return out;
      },
      nb::arg("isa"), nb::arg("seed"), nb::arg("choice"), nb::arg("position"),
      nb::arg("first_token"), nb::arg("count"), ComputeGuard());
  m.def(
      "gumbel_of_words",
      [](const std::string& isa, InArray<uint32_t, 1> x, InArray<uint32_t, 1> z) {
        require(x.shape(0) == z.shape(0), "x and z must be of one length");
        OutArray<float> out = new_array<float>({x.shape(0)});
        sampling_kernels(isa_argument(isa))
            .gumbel_of_words(x.data(), z.data(), extent_of(x.shape(0)), out.data());
        return out;
      },
      nb::arg("isa"), nb::arg("x"), nb::arg("z"), ComputeGuard());
  m.def(
      "philox",
      [](const std::string& isa, uint64_t key, InArray<uint32_t, 1> counter, uint32_t count) {
        require(counter.shape(0) == 4, "a counter has four words");
        const int32_t n = extent_of(count);
        OutArray<uint32_t> out = new_array<uint32_t>({count, 4});
        sampling_kernels(isa_argument(isa)).philox_rows(key, counter.data(), n, out.data());
        return out;
      },
      nb::arg("isa"), nb::arg("key"), nb::arg("counter"), nb::arg("count"));
}
