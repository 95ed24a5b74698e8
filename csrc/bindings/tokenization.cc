#include "tokenization/sentencepiece_bpe.h"

#include "bindings/numpy_arrays.h"
#include "bindings/registry.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace farthing;

FARTHING_BIND(tokenization) {
  nb::class_<SentencePieceBpe>(m, "SentencePieceBpe")
      .def(
          "__init__",
          [](SentencePieceBpe* self, std::vector<std::string> pieces, InArray<float, 1> scores,
             InArray<uint8_t, 1> kinds, std::vector<int32_t> bytes, int32_t unknown,
             bool remove_extra_whitespaces) {
            require(scores.shape(0) == pieces.size(), "one score a piece");
            require(kinds.shape(0) == pieces.size(), "one kind a piece");
            new (self) SentencePieceBpe(std::move(pieces), scores.data(), kinds.data(),
                                        std::move(bytes), unknown, remove_extra_whitespaces);
          },
          nb::arg("pieces"), nb::arg("scores"), nb::arg("kinds"), nb::arg("bytes"),
          nb::arg("unknown"), nb::arg("remove_extra_whitespaces"))
      .def(
          "encode",
          [](const SentencePieceBpe& self, std::string_view text, bool prefix) {
            // The view is of the string object's own bytes, which outlive the call.
            nb::gil_scoped_release release;
            return self.encode(text, prefix);
          },
          nb::arg("text"), nb::arg("prefix"));
}
