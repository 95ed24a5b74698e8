// Five-bit codes.
#include "kernels/linear/avx2_sums.h"
#include "kernels/linear/tiles.h"

namespace farthing::FARTHING_ISA::sweeps {

bool linear_five_bits(const Call& c) {
  return run_one_of<Ops, Scheme::q5_0, Scheme::q5_1, Scheme::w5g16, Scheme::w5g64, Scheme::w5g128,
                    Scheme::w5row>(c);
}

}  // namespace farthing::FARTHING_ISA::sweeps
