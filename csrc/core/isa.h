// Instruction sets: which exist, which this CPU and OS can run, which one is chosen.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farthing {

enum class Isa { scalar, avx2, avx512 };  // ascending preference

const char* isa_name(Isa isa);
std::optional<Isa> parse_isa(std::string_view name);

// True when CPU and operating system (xgetbv) can run every instruction the set's objects contain.
// scalar is compiled with FMA and F16C, so it too needs hardware that has them.
bool isa_supported(Isa isa);
std::vector<Isa> supported_isas();

// The set in force: FARTHING_ISA if given, else the best supported. Decided at the first call.
// Throws std::runtime_error naming the value and what would be right.
Isa active_isa();

}  // namespace farthing
