// Rounding and denormal mode of the calling thread, set on entry and restored on exit: another
// library in the process may have changed them, and results are bits.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace farthing {

class FloatMode {
 public:
  FloatMode() : saved_(read()) { write(kRoundNearestDenormalsKept); }
  ~FloatMode() { write(saved_); }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__x86_64__)
  using Register = unsigned;
  static constexpr Register kRoundNearestDenormalsKept = 0x1f80;  // all exceptions masked
  static Register read() { return _mm_getcsr(); }
  static void write(Register value) { _mm_setcsr(value); }
#elif defined(__aarch64__)
  using Register = uint64_t;
  static constexpr Register kRoundNearestDenormalsKept = 0;  // no traps, NaN payloads kept
  static Register read() {
    Register value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void write(Register value) { __asm__ volatile("msr fpcr, %0" : : "r"(value)); }
#endif
  Register saved_;
};

}  // namespace farthing
