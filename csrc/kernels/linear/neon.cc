// NEON with the dot product instructions.
#include "kernels/linear/bytes_neon.h"
#include "kernels/linear/dot_rows.h"
#include "kernels/linear/packed_row.h"
#include "kernels/linear/quantize_groups.h"

namespace farthing::FARTHING_ISA {
namespace {

template <Scheme S>
Lanes load_elements(const uint8_t* block, size_t k) {
  if constexpr (S == Scheme::f32) return load(reinterpret_cast<const float*>(block) + kLanes * k);
  if constexpr (S == Scheme::f16) return load(reinterpret_cast<const Half*>(block) + kLanes * k);
  return dots::load_brain(block + 2 * kLanes * k);
}

template <Scheme S>
void run_floats(const MatrixView& w, int32_t block_begin, int32_t block_end, const Activations& a,
                int32_t row_begin, int32_t row_end, const float* bias, const float* add,
                float* out, size_t out_stride) {
  dots::each_tile(block_begin, block_end, row_begin, row_end, [&]<int T>(int32_t b, int32_t t) {
    const uint8_t* block = w.data + static_cast<size_t>(b) * w.row_block_bytes;
    const size_t at = static_cast<size_t>(t) * out_stride;
    const dots::Tokens tokens(a, t);
    Lanes total[T];
    for (int32_t begin = 0; begin < w.cols; begin += kFloatRun) {
      const int32_t end = w.cols - begin < kFloatRun ? w.cols : begin + kFloatRun;
      Lanes chain[T];
      for (int i = 0; i < T; ++i) chain[i] = zero();
      for (size_t k = static_cast<size_t>(begin); k < static_cast<size_t>(end); ++k) {
        const Lanes weights = load_elements<S>(block, k);
        for (size_t i = 0; i < T; ++i)
          chain[i] =
              fma(weights, broadcast(tokens.values[i * tokens.value_stride + k]), chain[i]);
      }
      for (int i = 0; i < T; ++i) total[i] = begin == 0 ? chain[i] : total[i] + chain[i];
    }
    dots::write_tile<T>(w, b, total, bias, add == nullptr ? nullptr : add + at, out + at,
                        out_stride);
  });
}

void linear(const MatrixView& w, int32_t block_begin, int32_t block_end, const Activations& a,
            int32_t row_begin, int32_t row_end, const float* bias, const float* add, float* out,
            size_t out_stride) {
  const auto floats = [&](auto run) {
    run(w, block_begin, block_end, a, row_begin, row_end, bias, add, out, out_stride);
  };
  switch (w.scheme) {
    case Scheme::f32: return floats(run_floats<Scheme::f32>);
    case Scheme::f16: return floats(run_floats<Scheme::f16>);
    case Scheme::bf16: return floats(run_floats<Scheme::bf16>);
    default:
      dots::run_integers(w, block_begin, block_end, a, row_begin, row_end, bias, add, out,
                         out_stride);
  }
}

void quantize_group(const float* x, int32_t cols, int8_t* codes, float* scale, int32_t* sums) {
  int32x4_t largest = vdupq_n_s32(0);
  for (int32_t k = 0; k < cols; k += 4) {
    const uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(x + k));
    largest = vmaxq_s32(largest,
                        vreinterpretq_s32_u32(vandq_u32(bits, vdupq_n_u32(0x7fffffff))));
  }
  const int32_t bits = vmaxvq_s32(largest);
  const float absmax = std::bit_cast<float>(bits);
  const bool usable = bits < 0x7f800000 && !(absmax < 1e-30f);
  *scale = bits < 0x7f800000 && !usable ? 0.0f : absmax / 127.0f;
  const float32x4_t inverse = vdupq_n_f32(127.0f / absmax);
  const uint32x4_t keep = vdupq_n_u32(usable ? 0xffffffff : 0);
  for (int32_t k = 0; k < cols; k += kSumRun) {
    int32x4_t rounded[4];
    for (int i = 0; i < 4; ++i) {
      const float32x4_t scaled = vmulq_f32(vld1q_f32(x + k + 4 * i), inverse);
      rounded[i] = vreinterpretq_s32_u32(
          vandq_u32(vreinterpretq_u32_s32(vcvtnq_s32_f32(scaled)), keep));
    }
    const int16x8_t low = vcombine_s16(vmovn_s32(rounded[0]), vmovn_s32(rounded[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(rounded[2]), vmovn_s32(rounded[3]));
    vst1q_s8(codes + k, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    sums[k / kSumRun] = vaddvq_s32(vaddq_s32(vaddq_s32(rounded[0], rounded[1]),
                                             vaddq_s32(rounded[2], rounded[3])));
  }
}

void quantize_row(const float* x, int32_t cols, int32_t group, int8_t* codes, float* scales,
                  int32_t* sums) {
  quantize_groups(quantize_group, x, cols, group, codes, scales, sums);
}

}  // namespace

extern const LinearKernels linear_table;
const LinearKernels linear_table = {linear, dequantize_row, quantize_row};

}  // namespace farthing::FARTHING_ISA
