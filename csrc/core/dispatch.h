// Choosing a kernel family's table by instruction set: the same few lines for every family.
#pragma once

#include "core/isa.h"

// FARTHING_DISPATCH(Type, table, function) defines `const Type& function(Isa)` over the tables of
// that name in the namespaces of the sets that this build has. A family whose AVX-VNNI form is that
// of AVX2 names avx2 as the last argument; one with a form of its own names avxvnni.
#if defined(__x86_64__)

#define FARTHING_DISPATCH(Type, table, function, vnni_set)      \
  namespace scalar {                                            \
  extern const Type table;                                      \
  }                                                             \
  namespace avx2 {                                              \
  extern const Type table;                                      \
  }                                                             \
  namespace vnni_set {                                          \
  extern const Type table;                                      \
  }                                                             \
  namespace avx512 {                                            \
  extern const Type table;                                      \
  }                                                             \
  const Type& function(Isa isa) {                               \
    switch (isa) {                                              \
      case Isa::avx2: return avx2::table;                       \
      case Isa::avxvnni: return vnni_set::table;                \
      case Isa::avx512: return avx512::table;                   \
      case Isa::scalar:                                         \
      case Isa::neon: break;                                    \
    }                                                           \
    return scalar::table;                                       \
  }

#elif defined(__aarch64__)

#define FARTHING_DISPATCH(Type, table, function, vnni_set)                  \
  namespace scalar {                                                        \
  extern const Type table;                                                  \
  }                                                                         \
  namespace neon {                                                          \
  extern const Type table;                                                  \
  }                                                                         \
  const Type& function(Isa isa) {                                           \
    return isa == Isa::neon ? neon::table : scalar::table;                  \
  }

#endif
