// The instruction set a binding's caller names; refuses what this machine cannot run.
#pragma once

#include "core/isa.h"

#include <stdexcept>
#include <string>

namespace farthing {

inline Isa isa_argument(const std::string& name) {
  const std::optional<Isa> isa = parse_isa(name);
  if (!isa) throw std::invalid_argument("no instruction set is called '" + name + "'");
  if (!isa_supported(*isa))
    throw std::invalid_argument("this machine cannot run instruction set '" + name + "'");
  return *isa;
}

}  // namespace farthing
