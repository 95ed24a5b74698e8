// Four-bit codes that stand for the values of a codebook.
#include "kernels/linear/avx512_sums.h"
#include "kernels/linear/tiles.h"

namespace farthing::FARTHING_ISA::sweeps {

bool linear_codebook(const Call& c) {
  // One layout, told apart only by the codebook they come with.
  if (c.w.scheme == Scheme::nf4g32) return run<Ops, Scheme::iq4_nl>(c), true;
  return run_one_of<Ops, Scheme::iq4_nl, Scheme::nf4g64, Scheme::nf4g128>(c);
}

}  // namespace farthing::FARTHING_ISA::sweeps
