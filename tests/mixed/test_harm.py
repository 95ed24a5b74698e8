"""Harm of single matrices, against whole passes of the model with them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farthing import machine
from farthing.errors import InsufficientMemoryError
from farthing.evaluation.divergence import Comparison
from farthing.mixed import float_model
from farthing.mixed.candidates import LADDER
from farthing.mixed.float_model import UNSCORED, FloatModel
from farthing.mixed.harm import PROBE, Harm, measure_harms, measure_whole
from farthing.mixed.units import find_units
from farthing.models.checkpoint import TensorSource, open_checkpoint
from farthing.models.registry import FAMILIES, build_program
from farthing.packing import matrices
from farthing.program.ops import Program
from farthing.program.step import SequenceRows, StepOutput
from farthing.program.weights import NativeWeight, pack_quantized, packed_shape
from farthing.quantization import SCHEMES
from farthing.quantization.rounding import round_weights
from support.native_runs import Logits, NativeModel
from support.tiny_gguf import write_gguf
from support.tiny_models import make_tiny_model

TIED = ("qwen2-tied", "gemma2", "granite")
UNTIED = ("qwen2", "qwen3-moe", "qwen2 Q8_0")
WINDOWS = np.array([[(37 * i + 11 * w + 5) % 331 for i in range(41)] for w in range(3)], np.int32)


@dataclass
class Bench:
    """A tiny model in floats, and its harms."""

    model: FloatModel
    sources: Mapping[str, TensorSource]
    harms: dict[str, Harm]
    native: NativeModel


def bench(kind: str, folder: Path, threads: int = 2, *, measured: bool = True) -> Bench:
    name, _, scheme = kind.partition(" ")
    path = make_tiny_model(name, folder / "tiny")
    if scheme:
        path = write_gguf(name, path, folder / "tiny.gguf", scheme)
    checkpoint = open_checkpoint(path, FAMILIES)
    program = build_program(checkpoint.config)
    sources = {n: t for n, t in checkpoint.tensors.items() if isinstance(t, TensorSource)}
    model = FloatModel(checkpoint, program, WINDOWS, num_threads=threads)
    harms = {}
    if measured:
        harms = measure_harms(model, sources, LADDER, "weighted", known={}, found=lambda *_: None)
    return Bench(model, sources, harms, NativeModel(path))


@pytest.fixture(scope="module", params=TIED + UNTIED)
def tiny(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    found = bench(request.param, tmp_path_factory.mktemp("harm"))
    with found.model:
        yield found


def logits(tiny: Bench, changed: Mapping[str, NativeWeight]) -> Logits:
    """Of whole passes, a window each."""
    tiny.native.weights = {**tiny.model.weights, **changed}
    run = tiny.native.run(kv_dtype="fp32", num_threads=1)
    parts = []
    for window in WINDOWS:
        tokens = window[:-1].tolist()
        rows = SequenceRows(tokens, 0, run.new_sequence(len(tokens)), len(tokens) - UNSCORED)
        parts += run.step([rows])
    return np.concatenate(parts)


def divergence(tiny: Bench, changed: Mapping[str, NativeWeight]) -> float:
    targets = WINDOWS[:, UNSCORED + 1 :].reshape(-1)
    with Comparison(tiny.native.config.vocab_size, 1, model="one", reference="other") as c:
        scores = c.score(targets, logits(tiny, changed), logits(tiny, {}))
    assert scores.kl is not None
    return float(scores.kl.mean())


def rounded(tiny: Bench, weights: tuple[str, ...], scheme: str) -> dict[str, NativeWeight]:
    return {
        name: pack_quantized(
            round_weights(tiny.sources[name].dequantize(), SCHEMES[scheme], "weighted")
        )
        for name in weights
    }


def test_every_unit_does_what_a_whole_pass_with_it_shows(tiny: Bench) -> None:
    units = find_units(tiny.model.program)
    weights = [weight for unit in units for weight in unit.weights]
    named = {s.name for s in tiny.model.program.weights if len(s.shape) == 2}
    assert sorted(weights) == sorted(named - tiny.model.program.routers)
    for unit in units:
        expected = divergence(tiny, rounded(tiny, unit.weights, PROBE))
        assert tiny.harms[unit.name].probed == expected
        assert expected > 0


def test_a_wrong_unit_would_be_noticed(tiny: Bench) -> None:
    """The inverse test: no two units have one figure."""
    figures = [harm.probed for harm in tiny.harms.values()]
    assert len(set(figures)) == len(figures)


def test_floats_do_no_harm_and_fewer_bits_do_more(tiny: Bench) -> None:
    assert tiny.model.divergence({}) == 0
    for unit in find_units(tiny.model.program):
        harm = tiny.harms[unit.name]
        if tiny.sources[unit.name].stored.family == "dense":
            assert harm.of("keep") == 0
        else:  # activations are rounded beside its codes
            assert 0 <= harm.of("keep") < harm.of("w6g64")
            assert (harm.of("keep") > 0) == unit.multiplied
        assert harm.of("f16") < harm.of("w8g64") < harm.of("w6g64") < harm.of("w5g64")
        assert harm.of("w5g64") < harm.of(PROBE) == harm.probed


def test_harm_goes_by_the_ratio_of_errors_and_by_errors_where_the_probe_leaves_none() -> None:
    harm = Harm(0.3, {PROBE: 4.0, "w4row": 12.0, "f16": 0.0, "w8g64": float("inf")})
    assert [harm.of(s) for s in harm.errors] == [0.3, pytest.approx(0.9), 0.0, float("inf")]
    exact = Harm(0.0, {PROBE: 0.0, "w4row": 12.0, "w5g64": 3.0, "f16": 0.0})
    assert exact.of("w4row") > exact.of("w5g64") > exact.of("f16") == exact.of(PROBE) == 0


@pytest.mark.parametrize("tiny", TIED, indirect=True)
def test_a_table_that_is_the_output_matrix_too_is_judged_as_that(tiny: Bench) -> None:
    """By its outputs, to which int8 activations add an error that no row of it has."""
    table = find_units(tiny.model.program)[0]
    assert table.multiplied
    assert table.last == max(unit.last for unit in find_units(tiny.model.program))
    values = tiny.sources[table.name].dequantize()
    matrix = pack_quantized(round_weights(values, SCHEMES["w8g64"], "weighted"))
    of_rows = float(np.square(matrix.dequantize(0, len(values)).astype(np.float64) - values).mean())
    assert tiny.harms[table.name].errors["w8g64"] > 2 * of_rows


@pytest.mark.parametrize("tiny", UNTIED, indirect=True)
def test_the_error_of_a_table_is_that_of_the_rows_that_are_read(tiny: Bench) -> None:
    table = find_units(tiny.model.program)[0]
    assert not table.multiplied
    read = np.unique(WINDOWS[:, :-1])
    values = tiny.sources[table.name].dequantize()[read]
    for scheme in ("w4row", "nf4g64", "w6g64"):
        matrix = pack_quantized(round_weights(values, SCHEMES[scheme], "weighted"))
        found = matrix.dequantize(0, len(read)).astype(np.float64)
        expected = float(np.square(found - values).mean())
        assert tiny.harms[table.name].errors[scheme] == expected


def test_a_whole_model_is_what_a_pass_of_it_shows(tiny: Bench) -> None:
    units = find_units(tiny.model.program)
    schemes = {w: ("w5g64", "w8g64")[i % 2] for i, u in enumerate(units) for w in u.weights}
    changed: dict[str, NativeWeight] = {}
    for weight, scheme in schemes.items():
        changed |= rounded(tiny, (weight,), scheme)
    found = measure_whole(tiny.model, tiny.sources, schemes, "weighted")
    assert found == divergence(tiny, changed)
    assert found > 0


def test_two_whole_models_are_never_in_memory(tiny: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run, floats = FloatModel._run, tiny.model.weights
    rounded_bytes = []

    def watched(
        model: FloatModel, program: Program, weights: Mapping[str, NativeWeight], *rest: Any
    ) -> StepOutput:
        changed = (w for name, w in weights.items() if name in floats and w is not floats[name])
        rounded_bytes.append(sum(weight.nbytes for weight in changed))
        return run(model, program, weights, *rest)

    schemes = {w: "w8g64" for unit in find_units(tiny.model.program) for w in unit.weights}
    whole = sum(
        math.prod(packed_shape(scheme, tiny.sources[name].rows, tiny.sources[name].cols))
        for name, scheme in schemes.items()
    )
    monkeypatch.setattr(FloatModel, "_run", watched)
    measure_whole(tiny.model, tiny.sources, schemes, "absmax")
    assert max(rounded_bytes) < whole / 2 < sum(rounded_bytes)


def test_an_interrupted_measurement_does_not_round_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, parts = matrices._pack, []

    def slow(*part: Any) -> None:
        parts.append(part)
        time.sleep(0.05)
        pack(*part)

    def chunks(rows: int, cols: int) -> Iterator[tuple[int, int]]:
        yield from ((start, min(start + 16, rows)) for start in range(0, rows, 16))

    def interrupt(share: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(matrices, "_pack", slow)
    monkeypatch.setattr(matrices, "row_chunks", chunks)
    made = bench("qwen2", tmp_path, threads=1, measured=False)
    units = find_units(made.model.program)
    schemes = {w: "w8g64" for unit in units for w in unit.weights}
    first, second = (-(-made.sources[unit.name].rows // 16) for unit in units[:2])
    with made.model, pytest.raises(KeyboardInterrupt):
        measure_whole(made.model, made.sources, schemes, "absmax", interrupt)
    assert first <= len(parts) < first + second, "what is in work, and not all that waits"


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its floats, the largest unit in 16 bits, keys and values, two models' logits and 300 MiB."""
    checkpoint = open_checkpoint(make_tiny_model("qwen2-tied", tmp_path), FAMILIES)
    config, program = checkpoint.config, build_program(checkpoint.config)
    floats = 0
    for slot in program.weights:
        rows = slot.shape[0] if len(slot.shape) == 1 else -(-slot.shape[0] // 16) * 16
        floats += 4 * rows * (slot.shape[1] if len(slot.shape) == 2 else 1)
    rounded = 2 * config.vocab_size * config.hidden_size
    kv = 4 * WINDOWS.size * config.num_layers * 2 * config.num_kv_heads * config.head_dim
    scored = len(WINDOWS) * (WINDOWS.shape[1] - 1 - UNSCORED)
    needed = floats + rounded + kv + 2 * 4 * scored * config.vocab_size + (300 << 20)
    monkeypatch.setattr(machine, "memory_available", lambda: needed)
    with FloatModel(checkpoint, program, WINDOWS, num_threads=1) as model:
        assert model.divergence({}) == 0

    def load(*_: object, **__: object) -> None:
        pytest.fail("weights are read")

    monkeypatch.setattr(float_model, "load_weights", load)
    monkeypatch.setattr(machine, "memory_available", lambda: needed - 1)
    with pytest.raises(InsufficientMemoryError, match="takes 300 MiB, 300 MiB are available"):
        FloatModel(checkpoint, program, WINDOWS, num_threads=1)


@pytest.mark.parametrize("kind", ["qwen2-tied", "qwen3-moe"])
def test_threads_change_no_bit(kind: str, tmp_path: Path) -> None:
    found = []
    for threads in (1, 3):
        folder = tmp_path / str(threads)
        folder.mkdir()
        made = bench(kind, folder, threads)
        with made.model:
            found.append(made.harms)
    assert found[0] == found[1]
