// What a 64-bit Arm CPU and its operating system can run.
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "core/isa.h"

namespace farthing {

bool isa_supported(Isa isa) {
  switch (isa) {
    case Isa::scalar: return true;
    case Isa::neon: return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
    case Isa::avx2:
    case Isa::avxvnni:
    case Isa::avx512: return false;
  }
  return false;
}

}  // namespace farthing
