"""The machine's facts, and the proof that kernels are right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from farthing import _native, machine
from farthing.cli.doctor.kernel_cases import (
    HALF_FIELDS,
    KernelCase,
    awkward,
    kernel_cases,
    random_blocks,
)
from farthing.cli.doctor.kernel_proof import first_difference, prove_kernels
from farthing.cli.doctor.machine_report import (
    AMX_NOT_USED,
    cache_facts,
    describe_amx,
    describe_cpus,
    isa_facts,
)
from farthing.download.progress import Silent
from farthing.download.store import Manifest, Store, VerifiedFile
from farthing.program.kv_types import KV_DTYPES
from support.command_line import CommandLine


def test_all_kernels_here_are_equal_to_scalar() -> None:
    proofs = prove_kernels()
    assert {proof.isa for proof in proofs} == set(machine.supported_isas()) - {"scalar"}
    assert [proof for proof in proofs if not proof.equal] == []


def test_every_scheme_and_every_kernel_is_proved() -> None:
    proved = {case.kernel for case in kernel_cases()}
    for scheme in _native.schemes():
        assert {f"linear {scheme['name']}", f"dequantize {scheme['name']}"} <= proved
    assert {f"attention {dtype}" for dtype in KV_DTYPES} <= proved
    assert {"rope", "rope table"} <= proved
    assert {"rms_norm", "gated silu", "gated gelu_tanh", "add", "scale", "softcap"} <= proved
    assert {"route", "combine"} <= proved
    assert {"argmax", "sample", "log_sum_exp"} <= proved
    assert {"round mse w8m", "round weighted w4", "round absmax codebook"} <= proved
    assert {f"quantize rows, groups of {n}" for n in (16, 32, 64, 128, 256)} <= proved


def test_every_block_scheme_has_its_scales_named() -> None:
    blocks = {scheme["name"] for scheme in _native.schemes() if scheme["block_cols"] > 1}
    assert set(HALF_FIELDS) == blocks


@pytest.mark.parametrize(
    "scheme",
    [scheme for scheme in _native.schemes() if scheme["block_cols"]],
    ids=lambda scheme: scheme["name"],
)
def test_random_blocks_are_finite_and_varied(scheme: dict[str, object]) -> None:
    rng = np.random.default_rng(1)
    blocks = random_blocks(rng, scheme, 640)
    assert blocks.shape == (640, scheme["block_bytes"])
    matrix = _native.Matrix(scheme["name"], 2, 320 * int(str(scheme["block_cols"])))
    matrix.pack(0, blocks.reshape(-1))
    values = matrix.dequantize(0, 2, "scalar")
    assert np.isfinite(values).all()
    assert len(np.unique(values)) > 100


def test_awkward_values_have_outliers_denormals_and_both_zeros() -> None:
    values = awkward(np.random.default_rng(2), 4000)
    tiny = np.finfo(np.float32).tiny
    assert np.abs(values).max() > 1e4
    assert ((values != 0) & (np.abs(values) < tiny)).any()
    assert np.signbit(values[values == 0]).any()
    assert not np.signbit(values[values == 0]).all()


def test_a_sum_in_another_order_is_found_out() -> None:
    """What the proof is there for: the same numbers, added in groups, are other bits."""
    x = awkward(np.random.default_rng(3), 64)

    def total(isa: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        if isa == "scalar":
            return np.add.accumulate(x)[-1:]
        return np.add.accumulate(np.add.accumulate(x.reshape(8, 8), axis=0)[-1])[-1:]

    honest = KernelCase("copy", "64 values", lambda isa: x.copy(), ())
    regrouped = KernelCase("total", "64 values", total, ())
    proofs = prove_kernels(["avx2"], [honest, regrouped])
    assert [(proof.kernel, proof.equal, proof.inputs) for proof in proofs] == [
        ("copy", True, 1),
        ("total", False, 1),
    ]
    assert proofs[1].difference.startswith("64 values: output 0[0] is ")


def test_differences_in_one_bit_sign_shape_and_type_are_found() -> None:
    x = np.array([1.0, 0.0, np.nan], np.float32)
    assert first_difference((x,), (x.copy(),)) == ""
    flipped = x.copy()
    flipped.view(np.uint32)[2] ^= 1  # another NaN
    assert first_difference((x,), (flipped,)).startswith("output 0[2]")
    assert first_difference((x,), (-x,)).startswith("output 0[0]")
    assert first_difference((x[1:2],), (-x[1:2],)).startswith("output 0[0]")
    assert "not float32(3,)" in first_difference((x,), (x[:2],))
    assert "float64" in first_difference((x,), (x.astype(np.float64),))
    assert first_difference((x,), (x, x)) == "2 outputs, not 1"


@pytest.mark.parametrize(
    ("cpus", "expected"), [([0], "0"), ([0, 1, 2, 5], "0-2,5"), ([3, 5, 6], "3,5-6"), ([], "")]
)
def test_cpu_ranges(cpus: list[int], expected: str) -> None:
    assert describe_cpus(cpus) == expected


@pytest.mark.parametrize(
    ("features", "words"),
    [([], "this CPU has none; "), (["amx_int8", "amx_tile"], "this CPU has amx_int8, amx_tile; ")],
)
def test_it_is_said_whether_the_cpu_has_amx_and_why_it_is_not_used(
    features: list[str], words: str, tmp_path: Path
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"flags\t\t: fpu {' '.join(features)}\n")
    amx = isa_facts(tmp_path)["amx"]
    assert amx["features"] == features
    assert describe_amx(amx) == f"{words}not used: {AMX_NOT_USED}"


def test_the_cache_folder_has_what_lies_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the models that are used where others have put them."""
    monkeypatch.setenv("FARTHING_HOME", str(tmp_path / "home"))
    store = Store(tmp_path / "home")
    for name, root, size in (("own", None, 30), ("used-in-place", tmp_path / "shared", 500)):
        with store.lock(name, Silent()) as folder:
            place = root or folder
            place.mkdir(parents=True, exist_ok=True)
            (place / "x.gguf").write_bytes(bytes(size))
            file = VerifiedFile("x.gguf", size, (place / "x.gguf").stat().st_mtime_ns, "")
            where = None if root is None else str(root)
            store.record(folder, Manifest(name, "a test", None, False, (file,), where))
    assert len(store.installed()) == 2
    assert cache_facts() == {"folder": str(tmp_path / "home"), "models": 1, "bytes": 30}


def test_doctor_for_people(farthing: CommandLine) -> None:
    result = farthing("doctor")
    assert (result.returncode, result.stderr) == (0, "")
    for heading in (
        "CPU ",
        "Instruction sets",
        "(in use)",
        "AMX ",
        "not used: no kernels are written for it",
        "Allowed CPUs",
        "Control group",
        "Threads",
        "Memory",
        "Huge pages",
        "Read bandwidth",
        "Cache folder",
        "linear q4_k",
        "all equal bit for bit",
    ):
        assert heading in result.stdout


def test_doctor_for_programs(farthing: CommandLine, home: object) -> None:
    result = farthing("doctor", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    facts = json.loads(result.stdout)
    assert facts["cpu"]["allowed_cpus"] == list(machine.allowed_cpus())
    assert facts["threads"] == machine.default_threads()
    assert facts["instruction_sets"]["active"] in facts["instruction_sets"]["supported"]
    assert facts["instruction_sets"]["amx"] == {
        "features": list(machine.amx_features()),
        "used": False,
        "why_not": AMX_NOT_USED,
    }
    rate = facts["read_bandwidth"]
    assert rate["repeats"] >= 5
    assert 0 < rate["lowest"] <= rate["median"] <= rate["highest"]
    assert facts["cache"] == {"folder": str(home), "models": 0, "bytes": 0}
    assert facts["kernels"]
    assert all(kernel["equal"] for kernel in facts["kernels"])


def test_doctor_tells_which_instruction_set_is_forced(farthing: CommandLine) -> None:
    facts = json.loads(farthing.process("doctor", "--json", FARTHING_ISA="scalar").stdout)
    assert facts["instruction_sets"]["active"] == "scalar"
    assert facts["instruction_sets"]["amx"]["why_not"] == AMX_NOT_USED
    result = farthing.process("doctor", FARTHING_ISA="z80")
    assert result.returncode == 2
    assert result.stderr.startswith("farthing: error: FARTHING_ISA='z80'")
