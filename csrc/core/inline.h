// For functions of headers that objects of several instruction sets include: never an out-of-line
// copy, which the linker could take from the widest set for all of them.
#pragma once

#define FARTHING_INLINE inline __attribute__((always_inline))
