// Choosing the tokens of a batch of rows, and what a request's parameters do to them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

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
                       const InArray<uint32_t, 1>& positions, const std::vector<Mask>& allowed,
                       const std::vector<std::optional<const Controls*>>& controls) {
  const size_t count = rows.shape(0);
  require(temperatures.shape(0) == count && seeds.shape(0) == count &&
              choices.shape(0) == count && positions.shape(0) == count && allowed.size() == count &&
              controls.size() == count,
          "every column needs one entry for each row");
  const int32_t width = checked_width(logits);
  std::vector<RowToDraw> list(count);
  for (size_t i = 0; i < count; ++i) {
    const int32_t row = rows.data()[i];
    require(row >= 0 && static_cast<size_t>(row) < logits.shape(0), "rows: not a row of logits");
    const Controls* own = controls[i].value_or(nullptr);
    require(own == nullptr || own->settings().vocab_size == width,
            "controls were made for another vocabulary");
    list[i] = {row, temperatures.data()[i],
               {seeds.data()[i], choices.data()[i], positions.data()[i]},
               checked_mask(allowed[i], width), own};
  }
  OutArray<int32_t> tokens = new_array<int32_t>({count});
  const nb::gil_scoped_release release;
  sampler.draw(logits.data(), width, list, tokens.data());
  return tokens;
}

nb::tuple logprobs(RowSampler& sampler, const InArray<float, 2>& logits,
                   const InArray<int32_t, 1>& rows, const InArray<int32_t, 1>& chosen,
                   const InArray<int32_t, 1>& counts) {
  const size_t count = rows.shape(0);
  require(chosen.shape(0) == count && counts.shape(0) == count,
          "every column needs one entry for each row");
  const int32_t width = checked_width(logits);
  std::vector<RowToReport> list(count);
  int32_t most = 0;
  for (size_t i = 0; i < count; ++i) {
    list[i] = {rows.data()[i], chosen.data()[i], counts.data()[i]};
    require(list[i].row >= 0 && static_cast<size_t>(list[i].row) < logits.shape(0),
            "rows: not a row of logits");
    require(list[i].chosen >= 0 && list[i].chosen < width, "chosen: not a column of logits");
    require(list[i].n >= 0 && list[i].n <= width, "counts: not from 0 to the columns of logits");
    most = std::max(most, list[i].n);
  }
  const size_t stride = static_cast<size_t>(most);
  std::vector<TokenValue> best(count * stride, TokenValue{-1, 0.0f});
  std::vector<ChosenLogprob> of_chosen(count);
  {
    const nb::gil_scoped_release release;
    sampler.logprobs(logits.data(), width, list, best.data(), stride, of_chosen.data());
  }
  OutArray<float> chosen_values = new_array<float>({count});
  OutArray<int32_t> ranks = new_array<int32_t>({count});
  OutArray<int32_t> tokens = new_array<int32_t>({count, stride});
  OutArray<float> values = new_array<float>({count, stride});
  for (size_t i = 0; i < count; ++i) {
    chosen_values.data()[i] = of_chosen[i].logprob;
    ranks.data()[i] = of_chosen[i].rank;
  }
  for (size_t i = 0; i < best.size(); ++i) {
    tokens.data()[i] = best[i].token;
    values.data()[i] = best[i].value;
  }
  return nb::make_tuple(chosen_values, ranks, tokens, values);
}

void require_tokens(const std::vector<int32_t>& tokens, int32_t vocab_size, const char* what) {
  for (const int32_t token : tokens) require(token >= 0 && token < vocab_size, what);
}

void construct_controls(Controls* self, int32_t vocab_size, std::vector<int32_t> prompt,
                        int32_t top_k, double top_p, float min_p, double typical_p,
                        float repetition, float presence, float frequency, double dry_multiplier,
                        double dry_base, int32_t dry_allowed_length, int32_t dry_last_n,
                        std::shared_ptr<SequenceBreakers> dry_breakers,
                        const std::vector<std::tuple<int32_t, float>>& bias,
                        std::vector<std::vector<int32_t>> bad_words,
                        std::vector<int32_t> end_tokens, int32_t min_tokens) {
  ControlSettings s;
  s.vocab_size = vocab_size;
  s.filters.top_k = top_k;
  s.filters.top_p = top_p;
  s.filters.min_p = min_p;
  s.filters.typical_p = typical_p;
  s.penalties = {repetition, presence, frequency};
  require(repetition > 0.0f, "repetition must be above 0");
  require(dry_base >= 1.0 && dry_allowed_length >= 1, "dry_base or dry_allowed_length below 1");
  require(!dry_breakers || dry_breakers->vocab_size() == vocab_size,
          "breakers were made for another vocabulary");
  s.dry = {dry_multiplier, dry_base, dry_allowed_length, dry_last_n, std::move(dry_breakers)};
  int32_t last = -1;
  for (const auto& [token, value] : bias) {
    require(token > last && token < vocab_size, "bias: tokens must ascend, below the vocabulary");
    s.bias.push_back({last = token, value});
  }
  for (const std::vector<int32_t>& word : bad_words) {
    require(!word.empty(), "bad_words: an empty sequence");
    require_tokens(word, vocab_size, "bad_words: a token outside the vocabulary");
  }
  require_tokens(end_tokens, vocab_size, "end_tokens: a token outside the vocabulary");
  require_tokens(prompt, vocab_size, "prompt: a token outside the vocabulary");
  s.bad_words = std::move(bad_words);
  s.end_tokens = std::move(end_tokens);
  s.min_tokens = min_tokens;
  new (self) Controls(std::move(s), std::move(prompt));
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
           nb::arg("controls"),
           "Tokens of rows `rows` of logits (any, vocab); -1 where a logit is NaN or none is "
           "finite, -2 where nothing is allowed. allowed: a packed bit mask or None for each; "
           "controls: Controls or None for each.")
      .def("logprobs", &logprobs, nb::arg("logits"), nb::arg("rows"), nb::arg("chosen"),
           nb::arg("counts"),
           "(log probability of chosen (R,), its rank (R,), the counts[i] likeliest tokens and "
           "their log probabilities (R, max counts)) of rows `rows`; rank 0 where a logit is NaN "
           "or the highest is not finite. Tokens beyond counts[i] are -1.");
  nb::class_<SequenceBreakers>(m, "SequenceBreakers")
      .def("__init__",
           [](SequenceBreakers* self, int32_t vocab_size,
              std::vector<std::vector<int32_t>> sequences) {
             for (const std::vector<int32_t>& sequence : sequences) {
               require(!sequence.empty(), "an empty sequence");
               require_tokens(sequence, vocab_size, "a token outside the vocabulary");
             }
             new (self) SequenceBreakers(vocab_size, std::move(sequences));
           },
           nb::arg("vocab_size"), nb::arg("sequences"));
  nb::class_<Controls>(m, "Controls", "What a request's parameters do to its logits.")
      .def("__init__", &construct_controls, nb::arg("vocab_size"), nb::arg("prompt"), nb::kw_only(),
           nb::arg("top_k") = 0, nb::arg("top_p") = 1.0, nb::arg("min_p") = 0.0f,
           nb::arg("typical_p") = 1.0, nb::arg("repetition") = 1.0f, nb::arg("presence") = 0.0f,
           nb::arg("frequency") = 0.0f, nb::arg("dry_multiplier") = 0.0, nb::arg("dry_base") = 1.75,
           nb::arg("dry_allowed_length") = 2, nb::arg("dry_last_n") = -1,
           nb::arg("dry_breakers").none() = nb::none(),
           nb::arg("bias") = std::vector<std::tuple<int32_t, float>>(),
           nb::arg("bad_words") = std::vector<std::vector<int32_t>>(),
           nb::arg("end_tokens") = std::vector<int32_t>(), nb::arg("min_tokens") = 0)
      .def_prop_ro("num_generated", &Controls::num_generated)
      .def("append",
           [](Controls& controls, int32_t token) {
             require_tokens({token}, controls.settings().vocab_size,
                            "a token outside the vocabulary");
             controls.append(token);
           },
           nb::arg("token"), "A token was generated.")
      .def("edits",
           [](const Controls& controls, const InArray<float, 1>& logits) {
             require(logits.shape(0) == static_cast<size_t>(controls.settings().vocab_size),
                     "logits of another vocabulary");
             std::vector<TokenValue> edits;
             controls.edits(logits.data(), edits);
             std::vector<std::tuple<int32_t, float>> pairs;
             for (const TokenValue& e : edits) pairs.emplace_back(e.token, e.value);
             return pairs;
           },
           nb::arg("logits"), ComputeGuard(),
           "(token, value) of every token whose value may differ from its logit, ascending.");
}
