// What sweep.h asks of an instruction set, made of the parts of its ..._codes.h and ..._sums.h, one of
// which is included first.
#pragma once

#include "kernels/linear/sweep.h"

namespace farthing::FARTHING_ISA::sweeps {

struct Ops {
  static constexpr int kTile = kTileTokens;
  template <Scheme S>
  static constexpr int kStreamTokens = stream_tokens(S);
  template <Scheme S>
  using Panel = farthing::FARTHING_ISA::sweeps::Panel<S>;

  template <Scheme S, int T>
  static void stream(const Weights& w, int32_t cols, const Tokens& a, bool first, float* out) {
    if constexpr (traits_of(S).group == 0) {
      (void)first;  // all columns are one panel
      add_floats<S, T>(w.packed, static_cast<size_t>(cols), a, out);
    } else {
      const size_t steps = static_cast<size_t>(cols / kStepCols<S>);
      Meta<S, T> meta;
      read_meta<S, T>(a, steps * kStepGroups<S>, meta);
      const PackedCodes<S, prefetch_for(S, T)> codes{Lookup<traits_of(S).codebook>(w.codebook)};
      add_panel<S, T>(codes, w, steps, a, meta, first, out);
    }
  }

  template <Scheme S>
  static void unpack(const Weights& w, int32_t cols, Panel<S>& panel) {
    unpack_panel<S>(w, cols, panel);
  }

  template <Scheme S, int T>
  static void sweep(const Panel<S>* panels, int blocks, int32_t cols, const Tokens& a, bool first,
                    float* out) {
    const size_t steps = static_cast<size_t>(cols / kStepCols<S>);
    Meta<S, T> meta;
    read_meta<S, T>(a, steps * kStepGroups<S>, meta);
    for (int r = 0; r < blocks; ++r)
      add_panel<S, T>(PanelCodes<S>{panels[r]}, panels[r].weights, steps, a, meta, first,
                      out + r * T * kLanes);
  }

  static void write_row(const float* acc, const float* bias, const float* add, float* out) {
    farthing::FARTHING_ISA::sweeps::write_row(acc, bias, add, out);
  }
};

}  // namespace farthing::FARTHING_ISA::sweeps
