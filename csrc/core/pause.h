// Tells the CPU that a thread is spinning.
#pragma once

#include "core/inline.h"

namespace farthing {

FARTHING_INLINE void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // waits longer than `yield`, which most cores ignore
#endif
}

}  // namespace farthing
