// Names, checkpoint blocks and codebooks of the schemes.
#include "kernels/linear/layout.h"
#include "kernels/linear/linear.h"

namespace farthing {
namespace {

// The 16 levels of GGUF's IQ4_NL.
constexpr int8_t kIq4Nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
// round(127 * level) of NormalFloat4 (Dettmers et al., "QLoRA", 2023, appendix E).
constexpr int8_t kNf4[16] = {-127, -88, -67, -50, -36, -23, -12, 0,
                             10,   20,  31,  43,  56,  71,  92,  127};

constexpr SchemeInfo kTable[] = {
    {Scheme::f32, "f32", nullptr, 1, 4, nullptr},
    {Scheme::f16, "f16", nullptr, 1, 2, nullptr},
    {Scheme::bf16, "bf16", nullptr, 1, 2, nullptr},
    {Scheme::q4_0, "q4_0", "w4g32", 32, 18, nullptr},
    {Scheme::q4_1, "q4_1", "w4g32m", 32, 20, nullptr},
    {Scheme::q5_0, "q5_0", "w5g32", 32, 22, nullptr},
    {Scheme::q5_1, "q5_1", "w5g32m", 32, 24, nullptr},
    {Scheme::q8_0, "q8_0", "w8g32", 32, 34, nullptr},
    {Scheme::q4_k, "q4_k", nullptr, 256, 144, nullptr},
    {Scheme::q5_k, "q5_k", nullptr, 256, 176, nullptr},
    {Scheme::q6_k, "q6_k", nullptr, 256, 210, nullptr},
    {Scheme::iq4_nl, "iq4_nl", nullptr, 32, 18, kIq4Nl},
    {Scheme::w4g64, "w4g64", nullptr, 0, 0, nullptr},
    {Scheme::w4g128, "w4g128", nullptr, 0, 0, nullptr},
    {Scheme::w4row, "w4row", nullptr, 0, 0, nullptr},
    {Scheme::w4g64m, "w4g64m", nullptr, 0, 0, nullptr},
    {Scheme::w4g128m, "w4g128m", nullptr, 0, 0, nullptr},
    {Scheme::nf4g32, "nf4g32", nullptr, 0, 0, kNf4},
    {Scheme::nf4g64, "nf4g64", nullptr, 0, 0, kNf4},
    {Scheme::nf4g128, "nf4g128", nullptr, 0, 0, kNf4},
    {Scheme::w5g16, "w5g16", nullptr, 0, 0, nullptr},
    {Scheme::w5g64, "w5g64", nullptr, 0, 0, nullptr},
    {Scheme::w5g128, "w5g128", nullptr, 0, 0, nullptr},
    {Scheme::w5row, "w5row", nullptr, 0, 0, nullptr},
    {Scheme::w6g16, "w6g16", nullptr, 0, 0, nullptr},
    {Scheme::w6g32, "w6g32", nullptr, 0, 0, nullptr},
    {Scheme::w6g64, "w6g64", nullptr, 0, 0, nullptr},
    {Scheme::w6g128, "w6g128", nullptr, 0, 0, nullptr},
    {Scheme::w6row, "w6row", nullptr, 0, 0, nullptr},
    {Scheme::w8g16, "w8g16", nullptr, 0, 0, nullptr},
    {Scheme::w8g64, "w8g64", nullptr, 0, 0, nullptr},
    {Scheme::w8g128, "w8g128", nullptr, 0, 0, nullptr},
    {Scheme::w8row, "w8row", nullptr, 0, 0, nullptr},
};

consteval bool rows_are_in_order() {
  for (int i = 0; i < kNumSchemes; ++i)
    if (kTable[i].scheme != static_cast<Scheme>(i) ||
        (kTable[i].codebook != nullptr) != kTraits[i].codebook)
      return false;
  return sizeof(kTable) / sizeof(kTable[0]) == kNumSchemes;
}
static_assert(rows_are_in_order());

}  // namespace

const SchemeInfo& scheme_info(Scheme scheme) { return kTable[static_cast<int>(scheme)]; }

int32_t activation_group(Scheme scheme) { return scheme_traits(scheme).activation_group; }

}  // namespace farthing
