#include "bindings/registry.h"

NB_MODULE(_native, m) {
  m.doc() = "Farthing's native code: kernels, packed matrices and the program player.";
  for (farthing::Binder bind : farthing::binders()) bind(m);
}
