#include "core/isa.h"

#include <cpuid.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>

namespace farthing {
namespace {

struct CpuidLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidLeaf cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidLeaf r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

uint64_t enabled_states() {  // XCR0: register states the operating system saves
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

struct Features {
  bool fma = false, avx2 = false, avx512 = false;
};

Features detect() {
  Features f;
  const CpuidLeaf one = cpuid(1, 0);
  const bool osxsave = (one.ecx >> 27) & 1;
  if (!osxsave) return f;
  const uint64_t states = enabled_states();
  const bool ymm = (states & 0x6) == 0x6;
  const bool zmm = (states & 0xe6) == 0xe6;
  const bool avx = (one.ecx >> 28) & 1, fma = (one.ecx >> 12) & 1, f16c = (one.ecx >> 29) & 1;
  const CpuidLeaf seven = cpuid(7, 0);
  const auto ebx = [&](int bit) { return ((seven.ebx >> bit) & 1) != 0; };
  f.fma = ymm && avx && fma && f16c;
  f.avx2 = f.fma && ebx(5);
  const bool vnni = (seven.ecx >> 11) & 1;
  f.avx512 = f.avx2 && zmm && ebx(16) && ebx(17) && ebx(30) && ebx(31) && vnni;  // F DQ BW VL
  return f;
}

const Features& features() {
  static const Features f = detect();
  return f;
}

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
    case Isa::avx512: return "avx512";
  }
  return "?";
}

std::optional<Isa> parse_isa(std::string_view name) {
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512})
    if (name == isa_name(isa)) return isa;
  return std::nullopt;
}

bool isa_supported(Isa isa) {
  switch (isa) {
    case Isa::scalar: return features().fma;
    case Isa::avx2: return features().avx2;
    case Isa::avx512: return features().avx512;
  }
  return false;
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> list;
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512})
    if (isa_supported(isa)) list.push_back(isa);
  return list;
}

Isa active_isa() {
  static const Isa isa = choose();
  return isa;
}

}  // namespace farthing
