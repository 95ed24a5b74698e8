// Each file in bindings/ adds its part to the module with FARTHING_BIND(name)(nb::module_& m) {...}.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "core/float_mode.h"

namespace farthing {

// Given to every binding that computes: the caller's float mode must not reach the results.
using ComputeGuard = nanobind::call_guard<FloatMode>;

using Binder = void (*)(nanobind::module_&);
inline std::vector<Binder>& binders() {
  static std::vector<Binder> list;
  return list;
}

}  // namespace farthing

#define FARTHING_BIND(name)                                                       \
  static void bind_##name(nanobind::module_& m);                                  \
  static const bool bound_##name = (farthing::binders().push_back(bind_##name), true); \
  static void bind_##name(nanobind::module_& m)
