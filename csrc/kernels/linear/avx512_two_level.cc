// K-quants: scales of scales.
#include "kernels/linear/avx512_sums.h"
#include "kernels/linear/tiles.h"

namespace farthing::FARTHING_ISA::sweeps {

bool linear_two_level(const Call& c) {
  return run_one_of<Ops, Scheme::q4_k, Scheme::q5_k, Scheme::q6_k>(c);
}

}  // namespace farthing::FARTHING_ISA::sweeps
