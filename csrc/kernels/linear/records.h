// The activations of a call, rearranged once for the tiles of tokens that read them while the row
// blocks pass by: a tile reads one stream, at distances known to the compiler. What a code and the
// words of an activation group are is the instruction set's affair.
#pragma once

#include "core/aligned_buffer.h"
#include "kernels/linear/layout.h"
#include "kernels/linear/linear.h"

namespace farthing::FARTHING_ISA::sweeps {

constexpr SchemeTraits traits_of(Scheme s) { return kTraits[static_cast<int>(s)]; }

// Weights are taken in steps: a unit, or as many spans of a whole-row unit as share an activation
// scale. A step is one activation group, or two of 16 columns.
template <Scheme S>
inline constexpr bool kIsRow = traits_of(S).group == kWholeRow;
template <Scheme S>
inline constexpr int kStepCols =
    kIsRow<S> ? traits_of(S).activation_group : traits_of(S).unit_cols;
template <Scheme S>
inline constexpr int kStepSpans = kStepCols<S> / kSpanCols;
template <Scheme S>
inline constexpr int kStepGroups = kStepCols<S> / traits_of(S).activation_group;
// Runs of Activations::sums in an activation group.
template <Scheme S>
inline constexpr int kGroupRuns = traits_of(S).activation_group / kSumRun;

// Sizes of the tiles that cover `tokens`: as equal as possible, at most `most` each.
struct Tiling {
  int tiles, size, larger;  // the first `larger` tiles have size + 1
  int size_of(int tile) const { return tile < larger ? size + 1 : size; }
};
inline Tiling tiling(int tokens, int most) {
  const int tiles = (tokens + most - 1) / most;
  return {tiles, tokens / tiles, tokens % tiles};
}

// One record a step and tile of T tokens: for each span of the step [T] its codes, then for each of
// its activation groups [T] scales and [T][kWords] words.
template <Scheme S, int kCodeBytes, int kWords>
inline constexpr size_t kTokenBytes =  // of a token in a record
    kStepCols<S> * kCodeBytes + kStepGroups<S> * 4 * (1 + kWords);

template <Scheme S, int T, int kCodeBytes, int kWords>
struct RecordOf {
  static constexpr size_t kStride = kSpanCols * kCodeBytes;  // from token to token
  static constexpr size_t kCodes = kStepSpans<S> * kStride;  // of a token
  static constexpr size_t kGroup = 4 * T * (1 + kWords);
  static constexpr size_t kBytes = T * kTokenBytes<S, kCodeBytes, kWords>;
  const uint8_t* at;

  // The first token's codes of span j.
  [[gnu::always_inline]] const uint8_t* codes(size_t j) const { return at + j * T * kStride; }
  [[gnu::always_inline]] const uint8_t* scale(size_t g, size_t t) const {
    return at + T * kCodes + g * kGroup + 4 * t;
  }
  [[gnu::always_inline]] const uint8_t* word(size_t g, size_t t, size_t i = 0) const {
    return at + T * kCodes + g * kGroup + 4 * T + 4 * (kWords * t + i);
  }
};

template <class Ops, Scheme S>
constexpr size_t record_bytes(int tokens) {
  return static_cast<size_t>(tokens) *
         kTokenBytes<S, Ops::template kCodeBytes<S>, Ops::template kWords<S>>;
}

// Room that stays with the thread.
inline uint8_t* scratch(size_t bytes) {
  static thread_local AlignedBuffer memory;
  if (memory.bytes() < bytes) memory = AlignedBuffer(bytes);
  return memory.data();
}

// Records of the tokens from `first` on: those of the first tile's steps, then of the next's.
template <class Ops, Scheme S>
const uint8_t* prepare(const Activations& a, int32_t first, const Tiling& tiles) {
  constexpr size_t span_bytes = kSpanCols * Ops::template kCodeBytes<S>;
  constexpr size_t words = Ops::template kWords<S>;
  const size_t steps = static_cast<size_t>(padded_cols(a.cols, a.group) / kStepCols<S>);
  const int32_t count = tiles.tiles * tiles.size + tiles.larger;
  uint8_t* const begin = scratch(steps * record_bytes<Ops, S>(count));
  uint8_t* to = begin;
  size_t token = static_cast<size_t>(first);
  for (int tile = 0; tile < tiles.tiles; ++tile) {
    const size_t n = static_cast<size_t>(tiles.size_of(tile));
    const size_t bytes = record_bytes<Ops, S>(static_cast<int>(n));
    for (size_t t = 0; t < n; ++t, ++token) {
      const int8_t* codes = a.codes + token * a.code_stride;
      const float* scales = a.scales + token * static_cast<size_t>(a.groups());
      const int32_t* sums = a.sums + token * static_cast<size_t>(a.sums_per_row());
      uint8_t* record = to;
      for (size_t i = 0; i < steps; ++i, record += bytes) {
#pragma GCC unroll 1
        for (size_t j = 0; j < kStepSpans<S>; ++j)
          Ops::template prepare_span<S>(codes + kSpanCols * j, record + (n * j + t) * span_bytes);
        uint8_t* group = record + n * kStepSpans<S> * span_bytes + 4 * t;
#pragma GCC unroll 2
        for (size_t g = 0; g < kStepGroups<S>; ++g) {
          __builtin_memcpy(group, scales++, 4);
          Ops::template prepare_words<S>(codes, sums, group + 4 * (n + (words - 1) * t));
          codes += kStepCols<S> / kStepGroups<S>;
          sums += kGroupRuns<S>;
          group += 4 * n * (1 + words);
        }
      }
    }
    to += steps * bytes;
  }
  return begin;
}

}  // namespace farthing::FARTHING_ISA::sweeps
