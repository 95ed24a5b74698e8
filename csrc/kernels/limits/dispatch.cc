#include "kernels/limits/limits.h"

namespace farthing {

namespace scalar {
extern const LimitLoops limit_table;
}
namespace avx2 {
extern const LimitLoops limit_table;
}
namespace avx512 {
extern const LimitLoops limit_table;
}

LimitLoops limit_loops(Isa isa) {
  switch (isa) {
    case Isa::avx2: return avx2::limit_table;
    case Isa::avx512: return avx512::limit_table;
    case Isa::scalar: break;
  }
  return scalar::limit_table;
}

}  // namespace farthing
