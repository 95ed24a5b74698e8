"""The doctor's proof for one instruction set, with nothing installed but NumPy.

    python tests/emulation/prove_kernels.py neon

Exit status 1, and the kernels' names, unless every kernel equals the scalar one in every bit.
"""

from __future__ import annotations

import sys

from farthing import machine
from farthing.cli.doctor.kernel_proof import prove_kernels


def main() -> None:
    (isa,) = sys.argv[1:]
    if isa not in machine.supported_isas():
        sys.exit(f"{isa} cannot run here; these can: {', '.join(machine.supported_isas())}")
    proofs = prove_kernels([isa])
    wrong = [proof for proof in proofs if not proof.equal]
    for proof in wrong:
        print(f"{proof.kernel}: {proof.difference}")
    inputs = sum(proof.inputs for proof in proofs)
    print(f"{isa}: {len(proofs) - len(wrong)} of {len(proofs)} kernels equal, {inputs} inputs")
    if wrong or not proofs:
        sys.exit(1)


if __name__ == "__main__":
    main()
