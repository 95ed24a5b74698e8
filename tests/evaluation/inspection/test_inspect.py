"""The parts of an inspection, together and alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from farthing import machine
from farthing.errors import (
    InsufficientMemoryError,
    InvalidParameterError,
    ModelNotFoundError,
)
from farthing.evaluation.inspection.inspect import (
    PARTS,
    SPARE_BYTES,
    Inspection,
    Part,
    Settings,
    inspect,
)
from farthing.evaluation.inspection.levels import set_aside
from farthing.evaluation.inspection.matrices import find_matrices
from farthing.evaluation.inspection.residuals import PROMPT, ResidualStream, encode_prompt
from farthing.models.checkpoint import open_checkpoint
from farthing.models.registry import FAMILIES
from support.planted_outliers import DIMENSION, MATRIX, PLACE, WEIGHT

SHORT = PROMPT[:150]


class Recorder:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.told: dict[str, tuple[int, int]] = {}

    def rounding(self, done: int, total: int) -> None:
        self.told["rounding"] = done, total

    def loading(self, done: int, total: int) -> None:
        self.told["loading"] = done, total

    def reading(self, done: int, total: int) -> None:
        self.told["reading"] = done, total


def run(path: Path, *parts: Part, **settings: object) -> tuple[Inspection, Recorder]:
    recorder = Recorder()
    options = {"prompt": SHORT, "num_threads": 2, **settings}
    chosen = Settings(frozenset(parts or PARTS), **options)  # type: ignore[arg-type]
    return inspect(path, chosen, recorder), recorder


@pytest.fixture(scope="module")
def whole(planted_model: Path) -> tuple[Inspection, Recorder]:
    return run(planted_model)


def test_every_part_finds_what_was_planted(whole: tuple[Inspection, Recorder]) -> None:
    found, recorder = whole
    assert found.errors is not None
    assert found.anatomy is not None
    assert found.outliers is not None
    assert found.levels is not None
    assert found.anatomy.worst_of == "w4tensor"
    anatomy = found.anatomy.anatomy
    assert (anatomy.matrix, anatomy.max_at, anatomy.max_abs) == (MATRIX, PLACE, WEIGHT)
    assert found.levels.layer in (1, 2)
    assert found.levels.all_tokens.dimensions[0] == DIMENSION
    assert found.levels.all_tokens.ratio is not None
    assert found.levels.all_tokens.ratio > 2
    assert found.loaded_bytes > 4 * sum(matrix.size for matrix in found.matrices.layers)
    assert {name for name, (done, total) in recorder.told.items() if done == total > 0} == {
        "rounding",
        "loading",
        "reading",
    }


def test_levels_are_of_the_stream_where_it_is_largest(
    planted_model: Path, whole: tuple[Inspection, Recorder]
) -> None:
    found, _ = whole
    assert found.levels is not None
    assert found.outliers is not None
    prompt = encode_prompt(open_checkpoint(planted_model, FAMILIES), SHORT, "the prompt")
    stream = ResidualStream(planted_model, prompt, 3, num_threads=1, progress=lambda *_: None)
    streams = {layer: stream.values(layer) for layer in (None, 0, 1, 2)}
    layer = max(streams, key=lambda key: float(np.abs(streams[key]).max()))
    assert found.levels.layer == layer
    for both, rows in (
        (found.levels.all_tokens, streams[layer]),
        (found.levels.after_first, streams[layer][1:]),
    ):
        order = np.argsort(-np.abs(rows).max(axis=0), kind="stable")[:4]
        assert both.dimensions == tuple(order.tolist())
        expected = set_aside(rows, both.dimensions)
        assert both.whole.scale == expected.whole.scale == np.abs(rows).max().astype(float) / 127
        assert both.rest.scale == expected.rest.scale
        np.testing.assert_array_equal(both.rest.counts, expected.rest.counts)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_alone_gives_what_it_gives_beside_others(
    planted_model: Path, whole: tuple[Inspection, Recorder], part: Part
) -> None:
    alone, recorder = run(planted_model, part)
    everything, _ = whole
    assert {name for name in PARTS if getattr(alone, name) is not None} == {part}
    weights = part in ("errors", "anatomy")
    assert set(recorder.told) == ({"rounding"} if weights else {"loading", "reading"})
    match part:
        case "errors":
            assert alone.errors == everything.errors
        case "anatomy":
            assert alone.anatomy is not None
            assert everything.anatomy is not None
            assert alone.anatomy.worst_of == everything.anatomy.worst_of
            assert alone.anatomy.anatomy.steps == everything.anatomy.anatomy.steps
        case "outliers":
            assert alone.outliers is not None
            assert everything.outliers is not None
            for one, other in zip(alone.outliers.points, everything.outliers.points, strict=True):
                np.testing.assert_array_equal(one.all_tokens.values, other.all_tokens.values)
        case "levels":
            assert alone.levels is not None
            assert everything.levels is not None
            assert alone.levels.layer == everything.levels.layer
            assert alone.levels.all_tokens.ratio == everything.levels.all_tokens.ratio


def test_a_named_matrix_is_looked_at_without_measuring_others(planted_model: Path) -> None:
    found, recorder = run(
        planted_model, "anatomy", matrix="layers.1.mlp.up_proj", schemes=("w3g64", "km4row")
    )
    assert found.anatomy is not None
    assert found.anatomy.worst_of is None
    assert found.anatomy.anatomy.matrix == "model.layers.1.mlp.up_proj.weight"
    assert [steps.scheme for steps in found.anatomy.anatomy.steps] == ["w3g64", "km4row"]
    assert recorder.told == {}


def test_what_does_not_do_is_refused_before_anything_is_measured(planted_model: Path) -> None:
    for settings, problem in (
        ({"matrix": "layers.7.x"}, "no matrix of this model is called 'layers.7.x'"),
        ({"schemes": ("w9",)}, "no scheme is called 'w9'"),
        ({"prompt": ""}, "the prompt: has 0 token"),
    ):
        recorder = Recorder()
        with pytest.raises(InvalidParameterError, match=problem):
            inspect(planted_model, Settings(**settings), recorder)  # type: ignore[arg-type]
        assert recorder.told == {}


def test_a_model_without_tokenizer_has_weights_to_inspect(
    planted_model: Path, tmp_path: Path
) -> None:
    for file in planted_model.iterdir():
        if file.name in ("config.json", "model.safetensors"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    found, _ = run(tmp_path, "errors", schemes=("w4row",))
    assert found.errors is not None
    with pytest.raises(ModelNotFoundError, match="no tokenizer"):
        run(tmp_path, "outliers")


def test_a_matrix_too_large_for_memory_is_refused(
    planted_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = find_matrices(open_checkpoint(planted_model, FAMILIES)).largest_bytes
    enough = SPARE_BYTES + largest
    monkeypatch.setattr(machine, "memory_available", lambda: enough)
    run(planted_model, "errors", schemes=("w4tensor",))
    run(planted_model, "errors", schemes=("w4row",), method="mse")
    with pytest.raises(InsufficientMemoryError, match=r"embed_tokens.* 300 MiB are available"):
        run(planted_model, "errors", schemes=("w4tensor",), method="mse")  # codes of all of it too
    monkeypatch.setattr(machine, "memory_available", lambda: enough - 1)
    with pytest.raises(InsufficientMemoryError, match="its largest matrix, takes 300 MiB"):
        run(planted_model, "errors", schemes=("w4tensor",))
