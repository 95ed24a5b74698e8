// What a loop that waits for another thread tells the processor between two looks.
#pragma once

namespace farthing {

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // `yield` does nothing on most cores; draining the pipeline takes about as long as x86's pause.
  __asm__ volatile("isb" ::: "memory");
#endif
}

}  // namespace farthing
