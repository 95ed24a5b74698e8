"""Harm of single matrices, against whole passes of the model with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from farthing.evaluation.divergence import Comparison
from farthing.mixed.candidates import LADDER
from farthing.mixed.float_model import UNSCORED, FloatModel
from farthing.mixed.harm import PROBE, Harm, measure_harms, measure_whole
from farthing.mixed.units import find_units
from farthing.models.checkpoint import TensorSource, open_checkpoint
from farthing.models.registry import FAMILIES, build_program
from farthing.program.step import SequenceRows
from farthing.program.weights import NativeWeight, pack_quantized
from farthing.quantization import SCHEMES
from farthing.quantization.rounding import round_weights
from support.native_runs import Logits, NativeModel
from support.tiny_gguf import write_gguf
from support.tiny_models import make_tiny_model

KINDS = ("qwen2", "qwen2-tied", "gemma2", "qwen3-moe", "granite", "qwen2 Q8_0")
WINDOWS = np.array([[(37 * i + 11 * w + 5) % 331 for i in range(41)] for w in range(3)], np.int32)


@dataclass
class Bench:
    """A tiny model in floats, and its harms."""

    model: FloatModel
    sources: Mapping[str, TensorSource]
    harms: dict[str, Harm]
    native: NativeModel


def bench(kind: str, folder: Path, threads: int = 2) -> Bench:
    name, _, scheme = kind.partition(" ")
    path = make_tiny_model(name, folder / "tiny")
    if scheme:
        path = write_gguf(name, path, folder / "tiny.gguf", scheme)
    checkpoint = open_checkpoint(path, FAMILIES)
    program = build_program(checkpoint.config)
    sources = {n: t for n, t in checkpoint.tensors.items() if isinstance(t, TensorSource)}
    model = FloatModel(checkpoint, program, WINDOWS, num_threads=threads)
    harms = measure_harms(model, sources, LADDER, "weighted", known={}, found=lambda *_: None)
    return Bench(model, sources, harms, NativeModel(path))


@pytest.fixture(scope="module", params=KINDS)
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
    matrices = {s.name for s in tiny.model.program.weights if len(s.shape) == 2}
    assert sorted(weights) == sorted(matrices - tiny.model.program.routers)
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


def test_the_error_of_a_table_is_that_of_the_rows_that_are_read(tiny: Bench) -> None:
    table = find_units(tiny.model.program)[0]
    if table.multiplied:
        pytest.skip("the embedding is the output matrix too")
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
