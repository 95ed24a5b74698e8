// Eight-bit codes.
#include "kernels/linear/avx2_sums.h"
#include "kernels/linear/tiles.h"

namespace farthing::FARTHING_ISA::sweeps {

bool linear_eight_bits(const Call& c) {
  return run_one_of<Ops, Scheme::q8_0, Scheme::w8g16, Scheme::w8g64, Scheme::w8g128,
                    Scheme::w8row>(c);
}

}  // namespace farthing::FARTHING_ISA::sweeps
