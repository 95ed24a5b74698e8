// Instruction sets: which exist, which this CPU and OS can run, which one is chosen.
//
//   set      what its objects need
//   scalar   x86: FMA, F16C (without the vectorizer); Arm: any 64-bit one
//   avx2     AVX2, FMA, F16C
//   avxvnni  avx2 and AVX-VNNI, for the integer linear kernels; the others are avx2's
//   avx512   F, BW, VL, DQ and VNNI
//   neon     Advanced SIMD with the dot product instructions
//   amx      not written: a tile of 16 x 64 bytes wants 16 rows of activations at least, so it is
//            for prefill alone, needs leave from the kernel for each process, and could not be run
//            here: there is no such hardware to measure on, and no emulator among what we install
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farthing {

enum class Isa { scalar, avx2, avxvnni, avx512, neon };  // ascending preference

const char* isa_name(Isa isa);
std::optional<Isa> parse_isa(std::string_view name);

// True when this build has the set, and CPU and operating system can run every instruction that its
// objects contain.
bool isa_supported(Isa isa);
std::vector<Isa> supported_isas();

// The set in force: FARTHING_ISA if given, else the best supported. Decided at the first call.
// Throws std::runtime_error naming the value and what would be right.
Isa active_isa();

}  // namespace farthing
