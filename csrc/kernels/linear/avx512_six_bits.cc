// Six-bit codes.
#include "kernels/linear/avx512_sums.h"
#include "kernels/linear/tiles.h"

namespace farthing::FARTHING_ISA::sweeps {

bool linear_six_bits(const Call& c) {
  return run_one_of<Ops, Scheme::w6g16, Scheme::w6g32, Scheme::w6g64, Scheme::w6g128,
                    Scheme::w6row>(c);
}

}  // namespace farthing::FARTHING_ISA::sweeps
