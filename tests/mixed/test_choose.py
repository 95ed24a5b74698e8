"""From a model and a size to schemes: what is promised of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from farthing.errors import InvalidParameterError, UnsupportedOperationError
from farthing.evaluation.text import encode_text
from farthing.mixed import choose as choosing
from farthing.mixed.candidates import Candidate
from farthing.mixed.choose import Choice, Measured
from farthing.mixed.float_model import FloatModel
from farthing.models.checkpoint import open_checkpoint
from farthing.models.checkpoint.checkpoint import tokenizer_of
from farthing.models.registry import FAMILIES, build_program
from farthing.packing import PackOptions, quantize_model
from farthing.program.weights import NativeMatrix, load_weights
from support.mixtures import TEXT, Recorder, chosen
from support.packing import pack
from support.tiny_models import KINDS as CONFIGURATIONS
from support.tiny_models import make_model, make_tiny_model

KINDS = ("qwen2-tied", "qwen3-moe", "phi3-longrope")


def size(model: Path, scheme: str, folder: Path) -> int:
    options = PackOptions(scheme, "absmax", num_threads=2)
    return quantize_model(model, folder / f"in-{scheme}", options).nbytes


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_packed_has_the_size_and_the_divergence_that_were_told(
    kind: str, tmp_path: Path
) -> None:
    source = make_tiny_model(kind, tmp_path / "source")
    budget = size(source, "w5g64", tmp_path) + 1000
    choice = chosen(source, budget, tmp_path / "keep")
    candidate = choice.taken.candidate
    assert len(set(candidate.schemes.values())) > 2
    options = PackOptions("keep", "weighted", num_threads=2, schemes=candidate.schemes)
    packed = quantize_model(source, tmp_path / "packed", options)
    assert packed.nbytes == candidate.nbytes <= budget

    served = open_checkpoint(packed.path, FAMILIES)
    checkpoint = open_checkpoint(source, FAMILIES)
    program = build_program(checkpoint.config, context_length=checkpoint.config.context_length)
    matrices = {
        name: weight
        for name, weight in load_weights(program, served.tensors, num_threads=1).items()
        if isinstance(weight, NativeMatrix) and name not in program.routers
    }
    windows = choosing._windows(checkpoint, TEXT)
    with FloatModel(checkpoint, program, windows, num_threads=1) as model:
        assert model.divergence(matrices) == choice.taken.divergence
        changed = dict(matrices)
        del changed[next(iter(matrices))]
        assert model.divergence(changed) != choice.taken.divergence


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_never_worse_than_the_best_single_scheme_that_fits(kind: str, tmp_path: Path) -> None:
    source = make_tiny_model(kind, tmp_path / "source")
    last = float("inf")
    schemes = ("nf4g64", "w4g32", "w5g64", "w8g64")
    for budget in sorted({size(source, scheme, tmp_path) for scheme in schemes}):
        choice = chosen(source, budget, tmp_path / "keep")
        assert choice.uniform is not None
        name, uniform = choice.uniform
        assert choice.taken.divergence <= uniform.divergence
        assert set(uniform.candidate.schemes.values()) == {name}
        assert uniform.candidate.nbytes <= budget
        assert choice.mixed.candidate.predicted <= uniform.candidate.predicted
        assert choice.mixed.candidate.predicted < last  # more room, less harm
        last = choice.mixed.candidate.predicted


def test_a_single_scheme_is_taken_where_it_does_better() -> None:
    def measured(divergence: float) -> Measured:
        return Measured(Candidate({}, 1, 0.0), divergence)

    one, two = measured(0.2), measured(0.1)
    assert Choice(one, ("w4g64", two)).taken is two
    assert Choice(one, ("w4g64", two)).is_uniform
    for choice in (Choice(two, ("w4g64", one)), Choice(two, ("w4g64", two)), Choice(two, None)):
        assert choice.taken is two
        assert not choice.is_uniform


def figures(choice: Choice) -> tuple[Mapping[str, str], float, float]:
    candidate = choice.taken.candidate
    return candidate.schemes, candidate.predicted, choice.taken.divergence


def test_the_same_is_chosen_again_on_other_threads_and_after_a_stop(tmp_path: Path) -> None:
    source = make_tiny_model("qwen2-tied", tmp_path / "source")
    budget = size(source, "w5g64", tmp_path)
    whole = Recorder()
    first = chosen(source, budget, tmp_path / "one", whole, threads=1)
    units = len(whole.units)
    assert whole.known_units == 0
    assert whole.units[-1].units == whole.units[-1].of_units == units
    shares = [progress.share for progress in whole.units]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert len(whole.checked) == 2

    with pytest.raises(KeyboardInterrupt):
        chosen(source, budget, tmp_path / "two", Recorder(stop_after=5), threads=3)
    rest = Recorder()
    second = chosen(source, budget, tmp_path / "two", rest, threads=3)
    assert (rest.known_units, len(rest.units)) == (5, units - 5)
    assert figures(first) == figures(second)
    contents = [sorted((tmp_path / n).iterdir())[0].read_text() for n in ("one", "two")]
    assert sorted(contents[0].splitlines()) == sorted(contents[1].splitlines())


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    source = make_tiny_model("qwen2", tmp_path / "source")
    budget = size(source, "w5g64", tmp_path)
    chosen(source, budget, tmp_path / "keep")
    again, other = Recorder(), Recorder()
    chosen(source, budget, tmp_path / "keep", again)
    assert (again.units, again.checked, again.loaded) == ([], [], 0)
    chosen(source, budget + 5000, tmp_path / "keep", other)
    assert other.units == []
    assert other.checked
    tensors = source / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes())  # another time of change
    changed = Recorder()
    chosen(source, budget, tmp_path / "keep", changed)
    assert changed.known_units == 0


def test_another_tokenizer_is_measured_anew(tmp_path: Path) -> None:
    """The same text is other tokens then."""
    source = make_tiny_model("qwen2", tmp_path / "source")
    budget = size(source, "w5g64", tmp_path)
    first = chosen(source, budget, tmp_path / "keep")
    file = source / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    assert tokenizer["model"]["merges"].pop()
    file.write_text(json.dumps(tokenizer))
    changed = Recorder()
    second = chosen(source, budget, tmp_path / "keep", changed)
    assert changed.known_units == 0
    assert figures(first) != figures(second)


def test_where_floats_fit_nothing_is_measured(tmp_path: Path) -> None:
    source = make_tiny_model("qwen2-tied", tmp_path / "source")
    recorder = Recorder()
    choice = chosen(source, size(source, "keep", tmp_path), tmp_path / "keep", recorder)
    assert choice.floats
    assert set(choice.taken.candidate.schemes.values()) == {"keep"}
    assert recorder == Recorder()
    assert not (tmp_path / "keep").exists()


def test_what_cannot_be_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    source = make_tiny_model("qwen2-tied", tmp_path / "source")
    keep = tmp_path / "keep"
    with pytest.raises(InvalidParameterError, match="1,000 bytes are too few: the smallest that"):
        chosen(source, 1000, keep)
    with pytest.raises(InvalidParameterError) as caught:
        chosen(source, 0, keep)
    smallest = int(str(caught.value).split(" is ")[1].split()[0].replace(",", ""))
    with pytest.raises(InvalidParameterError, match="too few"):
        chosen(source, smallest - 1, keep)
    assert not keep.exists()
    assert chosen(source, smallest, keep).taken.candidate.nbytes == smallest

    budget = smallest + 5000
    short = replace(TEXT, text=TEXT.text[:300])
    with pytest.raises(InvalidParameterError, match=r"a novel: \d+ tokens are too few to measure"):
        choosing.choose(source, budget, short, "mse", num_threads=1, keep=keep, observer=Recorder())
    packed = pack(source, tmp_path / "packed")
    with pytest.raises(UnsupportedOperationError, match="is packed already"):
        chosen(packed, budget, keep)


def test_heads_that_no_kernel_runs_are_refused_before_weights_are_loaded(tmp_path: Path) -> None:
    llama = CONFIGURATIONS["llama-mha"]
    config = replace(llama, head_dim=24, rope=replace(llama.rope, dim=24))
    source = make_model(config, tmp_path / "source")
    observer = Recorder()
    with pytest.raises(UnsupportedOperationError, match=rf"{source}: heads of 24 dimensions"):
        chosen(source, size(source, "w8row", tmp_path), tmp_path / "keep", observer)
    assert observer.loaded == 0


def test_windows_are_spread_over_the_text(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(make_tiny_model("qwen2", tmp_path), FAMILIES)
    ids = encode_text(tokenizer_of(checkpoint), TEXT.text)
    size = choosing.WINDOW_TOKENS + 1
    last = len(ids) // size - 1
    expected = [ids[k * size : (k + 1) * size] for k in (0, last // 3, 2 * last // 3, last)]
    assert last > 12
    assert choosing._windows(checkpoint, TEXT).tolist() == expected
