// Rounding and denormal mode of the calling thread, set on entry and restored on exit: another
// library in the process may have changed them, and results are bits.
#pragma once

#include <xmmintrin.h>

namespace farthing {

class FloatMode {
 public:
  FloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(kRoundNearestDenormalsKept); }
  ~FloatMode() { _mm_setcsr(saved_); }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  static constexpr unsigned kRoundNearestDenormalsKept = 0x1f80;  // all exceptions masked
  unsigned saved_;
};

}  // namespace farthing
