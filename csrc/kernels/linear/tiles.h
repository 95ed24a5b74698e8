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

  template <Scheme S>
  static constexpr int kCodeBytes = code_bytes(S);
  template <Scheme S>
  static constexpr int kWords = words(S);
  template <Scheme S>
  [[gnu::always_inline]] static void prepare_span(const int8_t* codes, uint8_t* to) {
    farthing::FARTHING_ISA::sweeps::prepare_span<S>(codes, to);
  }
  template <Scheme S>
  [[gnu::always_inline]] static void prepare_words(const int8_t* codes, const int32_t* sums,
                                                   uint8_t* to) {
    farthing::FARTHING_ISA::sweeps::prepare_words<S>(codes, sums, to);
  }

  template <Scheme S, int T>
  static void floats(const uint8_t* packed, size_t cols, const Tokens& a, float* out) {
    add_floats<S, T>(packed, cols, a, out);
  }

  template <Scheme S, int T>
  static void stream(const Weights& w, size_t steps, const uint8_t* records, float* out) {
    const PackedCodes<S, prefetch_for(S, T)> codes{Lookup<traits_of(S).codebook>(w.codebook)};
    add_panel<S, T>(codes, w, steps, records, true, out);
  }

  template <Scheme S>
  static void unpack(const Weights& w, size_t steps, Panel<S>& panel) {
    unpack_panel<S>(w, steps, panel);
  }

  template <Scheme S, int T>
  static void sweep(const Panel<S>* panels, int blocks, size_t steps, const uint8_t* records,
                    bool first, float* out) {
    for (int r = 0; r < blocks; ++r)
      add_panel<S, T>(PanelCodes<S>{panels[r]}, panels[r].weights, steps, records, first,
                      out + r * T * kLanes);
  }

  static void write_row(const float* acc, const float* bias, const float* add, float* out) {
    farthing::FARTHING_ISA::sweeps::write_row(acc, bias, add, out);
  }
};

// LinearKernels::linear. Only for the file that defines the table.
inline void linear(const MatrixView& w, int32_t block_begin, int32_t block_end,
                   const Activations& a, int32_t row_begin, int32_t row_end, const float* bias,
                   const float* add, float* out, size_t out_stride) {
  if (row_end <= row_begin) return;
  const Call c{w,       block_begin, block_end, a,   row_begin,
               row_end, bias,        add,       out, out_stride};
  (void)(run_one_of<Ops, Scheme::f32, Scheme::f16, Scheme::bf16, Scheme::q4_0, Scheme::w4g64,
                    Scheme::w4g128, Scheme::w4row, Scheme::q4_1, Scheme::w4g64m,
                    Scheme::w4g128m>(c) ||
         linear_codebook(c) || linear_five_bits(c) || linear_six_bits(c) ||
         linear_eight_bits(c) || linear_two_level(c));
}

}  // namespace farthing::FARTHING_ISA::sweeps
