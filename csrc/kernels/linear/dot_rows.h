// Linear over instructions that add the products of four bytes to 32 bits: one row block at a time,
// tiles of a few tokens, whose sums stay in registers over all columns. The instruction set brings
// the bytes (bytes_neon.h, bytes_avxvnni.h), included before.
#pragma once

#include "core/lanes.h"
#include "kernels/linear/layout.h"
#include "kernels/linear/linear.h"

namespace farthing::FARTHING_ISA::dots {

template <Scheme S>
inline constexpr SchemeTraits kOf = kTraits[static_cast<int>(S)];

// What `dot` sees of a code that stands for 0, and the sums have to be freed of.
template <Scheme S>
inline constexpr int kOffset = kSignedCodes                                ? 0
                               : kOf<S>.code_bits == 8 || kOf<S>.codebook ? 128
                                                                           : kOf<S>.zero;

template <Scheme S>
FARTHING_INLINE Bytes ready(Bytes codes, const Codebook& book) {
  constexpr SchemeTraits t = kOf<S>;
  if constexpr (t.codebook) return look_up(book, codes);
  if constexpr (t.code_bits == 8) return kSignedCodes ? codes : less(codes, 128);
  return kSignedCodes && t.zero != 0 ? less(codes, t.zero) : codes;
}

// Quads 2i and 2i + 1 of a span.
template <Scheme S>
FARTHING_INLINE void read_pair(const uint8_t* span, int i, const Codebook& book, Bytes& even,
                               Bytes& odd) {
  constexpr int bits = kOf<S>.code_bits;
  if constexpr (bits == 8) {
    even = load_bytes(span + 128 * i);
    odd = load_bytes(span + 128 * i + 64);
  } else {
    const Bytes both = load_bytes(span + 64 * i);
    even = low_nibbles(both);
    odd = high_nibbles(both);
  }
  if constexpr (bits == 5) {
    const Bytes high = load_bytes(span + 256);
    even = insert_bits(even, 4 - 2 * i, high, 0x10);
    odd = insert_bits(odd, 3 - 2 * i, high, 0x10);
  }
  if constexpr (bits == 6) {
    const Bytes high = load_bytes(span + 256 + 64 * (i / 2));
    even = insert_bits(even, 4 - 4 * (i % 2), high, 0x30);
    odd = insert_bits(odd, 2 - 4 * (i % 2), high, 0x30);
  }
  even = ready<S>(even, book);
  odd = ready<S>(odd, book);
}

// A tile's activations; rows are `stride`s apart.
struct Tokens {
  const float* values;
  const int8_t* codes;
  const float* scales;
  const int32_t* sums;
  size_t value_stride, code_stride, scale_stride, sum_stride;

  Tokens(const Activations& a, int32_t first)
      : value_stride(static_cast<size_t>(a.cols)), code_stride(a.code_stride) {
    const size_t row = static_cast<size_t>(first);
    values = a.values == nullptr ? nullptr : a.values + row * value_stride;
    if (a.codes == nullptr) {
      codes = nullptr, scales = nullptr, sums = nullptr, scale_stride = sum_stride = 0;
      return;
    }
    scale_stride = static_cast<size_t>(a.groups());
    sum_stride = static_cast<size_t>(a.sums_per_row());
    codes = a.codes + row * code_stride;
    scales = a.scales + row * scale_stride;
    sums = a.sums + row * sum_stride;
  }

  float scale(int t, int group) const {
    return scales[static_cast<size_t>(t) * scale_stride + static_cast<size_t>(group)];
  }
  // Of the codes of `cols` columns from first_col on.
  int32_t sum(int t, int first_col, int cols) const {
    const int32_t* run = sums + static_cast<size_t>(t) * sum_stride + first_col / kSumRun;
    int32_t total = 0;
    for (int i = 0; i < cols / kSumRun; ++i) total += run[i];
    return total;
  }
};

// Sums of codes times activations of `cols` columns from first_col on, a multiple of 16.
template <Scheme S, int T>
FARTHING_INLINE void sum_products(const uint8_t* block, const Codebook& book, const Tokens& a,
                                  int first_col, int cols, IntLanes (&sums)[T]) {
  _Pragma("GCC unroll 4") for (int t = 0; t < T; ++t) sums[t] =
      broadcast_int(kOffset<S> == 0
                        ? 0u
                        : static_cast<uint32_t>(-kOffset<S> * a.sum(t, first_col, cols)));
  for (int col = first_col; col < first_col + cols; col += kSumRun) {
    const uint8_t* span = block + span_offset(kOf<S>, col);
    const int8_t* x = a.codes + col;
    const bool second = col % kSpanCols != 0;
    const auto pair = [&](int i) {
      Bytes even, odd;
      read_pair<S>(span, i, book, even, odd);
      const int8_t* quad = x + 8 * (i % 2);
      _Pragma("GCC unroll 4") for (int t = 0; t < T; ++t) {
        const int8_t* of_token = quad + static_cast<size_t>(t) * a.code_stride;
        sums[t] = dot(sums[t], even, of_token);
        sums[t] = dot(sums[t], odd, of_token + 4);
      }
    };
    if (second) {
      pair(2);
      pair(3);
    } else {
      pair(0);
      pair(1);
    }
  }
}

FARTHING_INLINE Lanes load_scales(const uint8_t* p) {
  return load(reinterpret_cast<const Half*>(p));
}
// fma(weight_scale * activation_scale, float(sum), acc)
FARTHING_INLINE Lanes add_scaled(Lanes weight_scale, float activation_scale, IntLanes sum,
                                 Lanes acc) {
  return fma(weight_scale * broadcast(activation_scale), to_float(sum), acc);
}

template <Scheme S, int T>
FARTHING_INLINE void add_one_level(const uint8_t* block, const Codebook& book, const Tokens& a,
                                   int cols, Lanes (&acc)[T]) {
  constexpr SchemeTraits t = kOf<S>;
  constexpr int group = t.activation_group;
  for (int g = 0; g < cols / group; ++g) {
    IntLanes sums[T];
    sum_products<S, T>(block, book, a, g * group, group, sums);
    const int scaled = g * group / t.group;  // the group of the weights
    const uint8_t* line = block + scale_line_offset(t, scaled);
    const Lanes scale = load_scales(line + 2 * kLanes * (scaled % t.chunk_groups));
    _Pragma("GCC unroll 4") for (int i = 0; i < T; ++i) {
      acc[i] = add_scaled(scale, a.scale(i, g), sums[i], acc[i]);
      if constexpr (t.minimum) {
        const uint32_t asum = static_cast<uint32_t>(a.sum(i, g * group, group));
        acc[i] = add_scaled(load_scales(line + 2 * kLanes), a.scale(i, g), broadcast_int(asum),
                            acc[i]);
      }
    }
  }
}

// Scale of sub-block j of a super-block of q4_k or q5_k, or its minimum, for every row.
FARTHING_INLINE IntLanes sub_scale(const uint8_t* unit, int j, bool minimum) {
  const IntLanes first = widen_unsigned(unit + kLanes * j);
  const IntLanes upper = widen_unsigned(unit + kLanes * (8 + j % 4));
  const IntLanes shifted = j < 4 ? upper : shift_right<4>(upper);
  const IntLanes high = minimum ? shift_right<2>(shifted) : shifted;
  const IntLanes low = minimum ? shift_right<4>(first) : first & broadcast_int(15);
  return low | shift_left<4>(high & broadcast_int(3));
}

template <Scheme S, int T>
FARTHING_INLINE void add_two_level(const uint8_t* block, const Codebook& book, const Tokens& a,
                                   int cols, Lanes (&acc)[T]) {
  constexpr SchemeTraits traits = kOf<S>;
  for (int s = 0; s < cols / kSuperCols; ++s) {
    const uint8_t* unit = block + unit_offset(traits, s * kSuperCols);
    IntLanes total[T], minimums[T];
    _Pragma("GCC unroll 4") for (int t = 0; t < T; ++t) total[t] = minimums[t] = broadcast_int(0);
    for (int j = 0; j < kSuperCols / traits.sub_cols; ++j) {
      const int first = s * kSuperCols + j * traits.sub_cols;
      IntLanes part[T];
      sum_products<S, T>(block, book, a, first, traits.sub_cols, part);
      const IntLanes scale = traits.minimum ? sub_scale(unit, j, false)
                                            : widen_signed(unit + kLanes * j);
      _Pragma("GCC unroll 4") for (int t = 0; t < T; ++t) {
        total[t] = total[t] + multiply(part[t], scale);
        if constexpr (traits.minimum) {
          const uint32_t asum = static_cast<uint32_t>(a.sum(t, first, traits.sub_cols));
          minimums[t] =
              minimums[t] + multiply(sub_scale(unit, j, true), broadcast_int(asum));
        }
      }
    }
    const uint8_t* line = block + scale_line_offset(traits, s);
    const Lanes scale = load_scales(line + 2 * kLanes * (s % traits.chunk_groups));
    _Pragma("GCC unroll 4") for (int t = 0; t < T; ++t) {
      acc[t] = add_scaled(scale, a.scale(t, s), total[t], acc[t]);
      if constexpr (traits.minimum) {
        const Lanes m = load_scales(line + 2 * kLanes) * broadcast(a.scale(t, s));
        acc[t] = fma(negative(m), to_float(minimums[t]), acc[t]);
      }
    }
  }
}

template <int T>
FARTHING_INLINE void write_tile(const MatrixView& w, int32_t b, const Lanes (&acc)[T],
                                const float* bias, const float* add, float* out,
                                size_t out_stride) {
  const int32_t first = b * kLanes;
  const int32_t rows = w.rows - first < kLanes ? w.rows - first : kLanes;
  for (int t = 0; t < T; ++t) {
    const size_t at = static_cast<size_t>(t) * out_stride + static_cast<size_t>(first);
    Lanes y = acc[t];
    if (bias != nullptr) y = y + load_first(bias + first, rows);
    if (add != nullptr) y = y + load_first(add + at, rows);
    store_first(out + at, rows, y);
  }
}

// Everything after the matrix is at the tile's first token.
template <Scheme S, int T>
void run_tile(const MatrixView& w, int32_t b, const Activations& a, int32_t token,
              const float* bias, const float* add, float* out, size_t out_stride) {
  const uint8_t* block = w.data + static_cast<size_t>(b) * w.row_block_bytes;
  const Codebook book(w.codebook);
  const Tokens tokens(a, token);
  const int32_t cols = padded_cols(w.cols, kOf<S>.activation_group);
  Lanes acc[T];
  for (int t = 0; t < T; ++t) acc[t] = zero();
  if constexpr (kOf<S>.sub_cols == 0)
    add_one_level<S, T>(block, book, tokens, cols, acc);
  else
    add_two_level<S, T>(block, book, tokens, cols, acc);
  write_tile<T>(w, b, acc, bias, add, out, out_stride);
}

// Calls tile.run<T>(block, token) for all row blocks, each with all tokens while it is near.
template <class Tile>
FARTHING_INLINE void each_tile(int32_t block_begin, int32_t block_end, int32_t row_begin,
                               int32_t row_end, Tile tile) {
  for (int32_t b = block_begin; b < block_end; ++b) {
    int32_t t = row_begin;
    for (; t + kTileTokens <= row_end; t += kTileTokens)
      tile.template operator()<kTileTokens>(b, t);
    for (; t < row_end; ++t) tile.template operator()<1>(b, t);
  }
}

template <Scheme S>
void run(const MatrixView& w, int32_t block_begin, int32_t block_end, const Activations& a,
         int32_t row_begin, int32_t row_end, const float* bias, const float* add, float* out,
         size_t out_stride) {
  each_tile(block_begin, block_end, row_begin, row_end, [&]<int T>(int32_t b, int32_t t) {
    const size_t at = static_cast<size_t>(t) * out_stride;
    run_tile<S, T>(w, b, a, t, bias, add == nullptr ? nullptr : add + at, out + at, out_stride);
  });
}

// Runs the call if it is for one of kSchemes, and says whether it was.
template <Scheme... kSchemes, class... Arguments>
bool run_one_of(const MatrixView& w, Arguments... arguments) {
  return ((w.scheme == kSchemes && (run<kSchemes>(w, arguments...), true)) || ...);
}

// Every integer scheme.
template <class... Arguments>
bool run_integers(const MatrixView& w, Arguments... arguments) {
  using enum Scheme;
  return run_one_of<q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, iq4_nl, w4g64, w4g128, w4row,
                    w4g64m, w4g128m, nf4g32, nf4g64, nf4g128, w5g16, w5g64, w5g128, w5row, w6g16,
                    w6g32, w6g64, w6g128, w6row, w8g16, w8g64, w8g128, w8row>(w, arguments...);
}

}  // namespace farthing::FARTHING_ISA::dots
