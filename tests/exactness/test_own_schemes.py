"""Each scheme weights are rounded to, through a whole packed model: the bits, and what they err.

No size of the model is a multiple of 32, so that every row ends within a group; a second model has
whole groups, whose order can be turned.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from farthing import _native
from farthing.program.kv_types import KvDtype
from farthing.program.reference import ReferenceExecutor
from farthing.program.step import SequenceRows, step_batch
from farthing.program.weights import NativeMatrix, NativeWeight, load_weights
from farthing.quantization import scheme as find_scheme
from farthing.quantization.carrier import carrier_of
from farthing.quantization.rounding import round_weights
from farthing.quantization.schemes import SCHEME_ALIASES, SCHEMES
from support.native_runs import Logits, NativeModel, assert_same_bits
from support.packing import pack
from support.rounded_inputs import rounding_inputs
from support.tiny_models import KINDS, make_model
from support.truth import assert_within_yardstick

SERVED = tuple(
    {gguf: own for own, gguf in SCHEME_ALIASES.items()}.get(name, name)
    for name, scheme in SCHEMES.items()
    if scheme.served and scheme.coded
)
CARRIED = {"w2g32m": "q4_1", "w3g16": "w5g16", "w4tensor": "w4row", "w4tensorm": "w4g128m",
           "w4g256": "w4g128", "w5g64m": "q5_1", "w7row": "w8row", "w8tensor": "w8row",
           "nf4row": "nf4g128", "km4g64": "nf4g64", "km4g16": "w8g16"}  # fmt: skip
"""Of each kind that the layouts of others hold, and those."""
QUICK = ("w4tensor", "km4g64")
"""The others' kernels are those of schemes that are here anyway."""
NAMES = (
    *SERVED,
    *QUICK,
    *(pytest.param(name, marks=pytest.mark.slow) for name in CARRIED if name not in QUICK),
)
ODD = replace(
    KINDS["qwen2-tied"],
    num_layers=2,
    hidden_size=147,
    intermediate_size=277,
    num_heads=5,
    num_kv_heads=1,
)
GROUPED = replace(ODD, num_layers=1, hidden_size=64, intermediate_size=8 * 128)
TOKENS = np.random.default_rng(21).integers(0, ODD.vocab_size, 37).tolist()
ISAS = _native.supported_isas()


def part_for(isa: str) -> list[int]:
    """How many of the tokens an instruction set computes: scalar code is slow."""
    return TOKENS[:17] if isa == "scalar" else TOKENS


def test_every_scheme_is_here() -> None:
    families = {"w4": "32 64 128 row 32m 64m 128m", "w5": "16 32 64 128 row 32m",
                "w6": "16 32 64 128 row", "w8": "16 32 64 128 row", "nf4": "32 64 128"}  # fmt: skip
    named = {
        f"{codes}{columns}" if columns == "row" else f"{codes}g{columns}"
        for codes, groups in families.items()
        for columns in groups.split()
    }
    assert set(SERVED) == named | {"iq4_nl"}
    for name, carrier in CARRIED.items():
        assert carrier_of(find_scheme(name)).name == carrier
    for cols in (ODD.hidden_size, ODD.intermediate_size, ODD.num_heads * ODD.head_dim):
        assert cols % 32


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(ODD, tmp_path_factory.mktemp("odd"))


@pytest.fixture(scope="module", params=NAMES)
def scheme(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def model(scheme: str, source: Path, tmp_path_factory: pytest.TempPathFactory) -> NativeModel:
    model = NativeModel(pack(source, tmp_path_factory.mktemp("packed") / "model", scheme))
    served = {w.scheme for w in model.weights.values() if isinstance(w, NativeMatrix)}
    assert served == {carrier_of(find_scheme(scheme)).name}
    return model


@pytest.fixture(scope="module")
def whole(model: NativeModel) -> Logits:
    return model.run().logits(TOKENS)


@pytest.mark.parametrize("isa", ISAS)
def test_threads_pieces_and_instruction_sets_do_not_show_in_the_bits(
    model: NativeModel, whole: Logits, isa: str
) -> None:
    part = part_for(isa)
    for num_threads, chunk in ((1, None), (2, 16), (3, 7), (4, 1), (64, 7)):
        logits = model.run(isa=isa, num_threads=num_threads).logits(part, chunk)
        assert_same_bits(logits, whole[: len(part)])


@pytest.mark.parametrize("isa", ISAS)
def test_neighbours_do_not_show_in_the_bits(model: NativeModel, whole: Logits, isa: str) -> None:
    """Up to 39 rows a pass: tiles of all sizes, codes unpacked in registers and beforehand."""
    part = part_for(isa)
    for rows, length, chunk in ((2, 37, 23), (12, 2, 1), (39, 1, 1)):
        neighbours = [(TOKENS[i:] + TOKENS[:i])[: min(length, len(part))] for i in range(1, rows)]
        run = model.run(isa=isa, seed=rows)
        logits = run.batched_logits([part, *neighbours], chunk)[0]
        assert_same_bits(logits, whole[: len(part)])


@pytest.mark.parametrize(
    "kv_dtype",
    ["int8", "fp32", *(pytest.param(name, marks=pytest.mark.slow) for name in ("int4", "k8v4"))],
)
def test_other_caches_give_the_same_bits_too(model: NativeModel, kv_dtype: KvDtype) -> None:
    whole = model.run(kv_dtype=kv_dtype).logits(TOKENS)
    for isa in ISAS:
        run = model.run(kv_dtype=kv_dtype, isa=isa, num_threads=3)
        part = part_for(isa)
        assert_same_bits(run.logits(part, 9), whole[: len(part)])


def test_copied_weights_give_the_bits_of_mapped_ones(model: NativeModel, whole: Logits) -> None:
    copied = NativeModel(model.checkpoint.path)
    copied.weights = load_weights(copied.program, copied.tensors, num_threads=2, placement="copy")
    for name, weight in model.weights.items():
        other = copied.weights[name]
        if isinstance(weight, NativeMatrix):
            assert isinstance(other, NativeMatrix)
            assert other.packed_bytes().ctypes.data != weight.packed_bytes().ctypes.data
    assert_same_bits(copied.run().logits(TOKENS), whole)


def test_logits_err_as_int8_activations_do_and_no_more(
    scheme: str, source: Path, model: NativeModel
) -> None:
    """The truth: weights as NumPy makes them of codes and scales."""
    unrounded = NativeModel(source)

    def exact(name: str) -> NDArray[np.floating]:
        values = unrounded.tensors[name].dequantize()
        if not isinstance(model.weights[name], NativeMatrix):
            return values
        return round_weights(values, find_scheme(scheme), "absmax").dequantize()

    batch = step_batch([SequenceRows(TOKENS, 0, range(4), logits=len(TOKENS))])
    truth, rounded = (
        ReferenceExecutor(model.program, weights).run(batch).logits
        for weights in (exact, rounding_inputs(model, exact))
    )
    assert (rounded != truth).any(axis=1).all()
    assert_within_yardstick(model.run().logits(TOKENS), rounded, truth)


@pytest.mark.parametrize("scheme", ["w6g16", "w8g16"])
def test_heads_of_odd_groups_of_16_leave_each_other_alone(scheme: str, tmp_path: Path) -> None:
    """Threads round them in whichever order; a row is filled up to whole 32s at its end only."""
    heads = replace(ODD, num_layers=1, num_heads=7, num_kv_heads=7)
    model = NativeModel(pack(make_model(heads, tmp_path / "plain"), tmp_path / "model", scheme))
    whole = model.run(num_threads=1).logits(TOKENS[:9])
    run = model.run(num_threads=16, tokens=16 * 60)
    for _ in range(60):
        assert_same_bits(run.logits(TOKENS[:9]), whole)


TURNED = {".gate_proj.": 0, ".up_proj.": 0, ".down_proj.": 1}
"""The axis of their inner channels."""


def turn_groups(name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """``values`` with the groups of 128 inner channels in the opposite order."""
    axes = [axis for part, axis in TURNED.items() if part in name]
    if not axes:
        return values
    order = np.arange(GROUPED.intermediate_size).reshape(-1, 128)[::-1].reshape(-1)
    return np.ascontiguousarray(np.take(values, order, axes[0]))


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and the same with inner channels in another order."""
    folder = tmp_path_factory.mktemp("turned")
    plain, turned = make_model(GROUPED, folder / "plain"), folder / "turned"
    shutil.copytree(plain, turned)
    weights = safetensors.numpy.load_file(plain / "model.safetensors")
    weights = {name: turn_groups(name, values) for name, values in weights.items()}
    safetensors.numpy.save_file(weights, turned / "model.safetensors", {"format": "pt"})
    return plain, turned


def test_groups_added_in_another_order_show_in_the_bits(
    scheme: str, turned: tuple[Path, Path], tmp_path: Path
) -> None:
    """The inverse test: the same codes, scales and integer sums, only added up from the end."""
    one, other = (NativeModel(pack(path, tmp_path / path.name, scheme)) for path in turned)
    for name, weight in one.weights.items():
        np.testing.assert_array_equal(
            values_of(other.weights[name]), turn_groups(name, values_of(weight))
        )
    for isa in ISAS:
        part = part_for(isa)
        logits, regrouped = (m.run(isa=isa).logits(part) for m in (one, other))
        with pytest.raises(AssertionError):
            assert_same_bits(regrouped, logits)
        assert_same_bits(one.run(isa=isa, seed=5).logits(part, 9), logits)


def values_of(weight: NativeWeight) -> NDArray[np.float32]:
    return weight.dequantize(0, weight.rows) if isinstance(weight, NativeMatrix) else weight
