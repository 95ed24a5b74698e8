#include "core/isa.h"

#include <cstdlib>
#include <stdexcept>

namespace farthing {
namespace {

constexpr Isa kAll[] = {Isa::scalar, Isa::avx2, Isa::avxvnni, Isa::avx512, Isa::neon};

Isa choose() {
  const std::vector<Isa> available = supported_isas();
  if (available.empty())
    throw std::runtime_error("this CPU lacks FMA and F16C, which every Farthing kernel needs");
  const char* forced = std::getenv("FARTHING_ISA");
  if (forced == nullptr || *forced == '\0') return available.back();
  std::string names;
  for (Isa isa : available) names += std::string(names.empty() ? "" : ", ") + isa_name(isa);
  const std::optional<Isa> isa = parse_isa(forced);
  if (!isa || !isa_supported(*isa))
    throw std::runtime_error("FARTHING_ISA='" + std::string(forced) +
                             "' cannot run on this machine; one of: " + names);
  return *isa;
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::scalar: return "scalar";
    case Isa::avx2: return "avx2";
    case Isa::avxvnni: return "avxvnni";
    case Isa::avx512: return "avx512";
    case Isa::neon: return "neon";
  }
  return "?";
}

std::optional<Isa> parse_isa(std::string_view name) {
  for (Isa isa : kAll)
    if (name == isa_name(isa)) return isa;
  return std::nullopt;
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> list;
  for (Isa isa : kAll)
    if (isa_supported(isa)) list.push_back(isa);
  return list;
}

Isa active_isa() {
  static const Isa isa = choose();
  return isa;
}

}  // namespace farthing
