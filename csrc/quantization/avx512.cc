#include "quantization/rounding_table.h"

namespace farthing::FARTHING_ISA {

extern const RoundingKernels rounding_table;
const RoundingKernels rounding_table = kRounding;

}  // namespace farthing::FARTHING_ISA
