// What an x86-64 CPU and its operating system can run.
#include <cpuid.h>

#include <cstdint>

#include "core/isa.h"

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
  bool fma = false, avx2 = false, avxvnni = false, avx512 = false;
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
#if defined(FARTHING_AVXVNNI_AS_AVX512)
  f.avxvnni = f.avx512;
#else
  f.avxvnni = f.avx2 && ((cpuid(7, 1).eax >> 4) & 1) != 0;
#endif
  return f;
}

}  // namespace

bool isa_supported(Isa isa) {
  static const Features f = detect();
  switch (isa) {
    case Isa::scalar: return f.fma;
    case Isa::avx2: return f.avx2;
    case Isa::avxvnni: return f.avxvnni;
    case Isa::avx512: return f.avx512;
    case Isa::neon: return false;
  }
  return false;
}

}  // namespace farthing
