"""An evaluation of tiny models against transformers in float64, and what it promises beside."""

from __future__ import annotations

import gc
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from farthing.errors import ContextLengthError, FarthingError, InvalidParameterError
from farthing.evaluation.battery import load_battery
from farthing.evaluation.divergence import Scores
from farthing.evaluation.evaluate import Evaluation, evaluate
from farthing.evaluation.observer import Stage
from farthing.evaluation.settings import Settings
from farthing.evaluation.statistics import bootstrap_mean
from farthing.evaluation.summary import ModelFigures, summarize
from farthing.models.checkpoint import open_checkpoint
from farthing.models.registry import FAMILIES
from farthing.program.native import NativeExecutor
from farthing.tokenization.tokenizer import Tokenizer
from support import truth
from support.evaluations import TEXT, Recorder
from support.tiny_models import KINDS, make_model, make_tiny_model

SETTINGS = Settings(
    context=32,
    positions=12,
    prompt_tokens=8,
    path_tokens=4,
    speed=False,
    kv_cache_dtype="fp32",
    num_threads=2,
)


def run(model: Path, reference: Path | None = None, settings: Settings = SETTINGS) -> Evaluation:
    return evaluate(model, TEXT, reference=reference, settings=settings, observer=Recorder())


def scores(found: Evaluation) -> Scores:
    """Of the one candidate."""
    (candidate,) = found.candidates
    return candidate.scores


def figures(found: Evaluation) -> ModelFigures:
    (candidate,) = found.candidates
    return summarize(candidate, found)


def log_probabilities(model: Path, *, double: bool) -> NDArray[np.float64]:
    """By transformers, of every scored position of every window, (windows, scored, vocab)."""
    module = truth.load_transformers(model)
    module = truth.in_float64(module) if double else module
    checkpoint = open_checkpoint(model, FAMILIES)
    assert checkpoint.tokenizer is not None
    tokenizer = Tokenizer.from_source(checkpoint.tokenizer)
    ids = tokenizer.encode(TEXT)
    rows = []
    for start in range(0, len(ids) // 32 * 32, 32):
        window = ids[start : start + 32]
        if tokenizer.beginning:
            window[0] = tokenizer.beginning[0]
        logits = truth.logits(module, window)[16:31]
        logits = logits - logits.max(axis=1, keepdims=True)
        rows.append(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    return np.stack(rows)


def nll(log_p: NDArray[np.float64], found: Evaluation) -> NDArray[np.float64]:
    targets = found.windows.targets[:, :, None]
    return np.asarray(-np.take_along_axis(log_p, targets, axis=2).reshape(-1))


def divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((np.exp(p) * (p - q)).sum(axis=2).reshape(-1))


@pytest.mark.parametrize("name", ["reference_model", "bos_model"])
def test_likelihoods_are_those_of_transformers(name: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(name)
    found = run(path)
    assert len(found.windows.tokens) > 4
    plain, exact = (nll(log_probabilities(path, double=d), found) for d in (False, True))
    truth.assert_within_yardstick(scores(found).nll, plain, exact)


def test_divergence_is_that_of_transformers(reference_model: Path, other_model: Path) -> None:
    found = run(other_model, reference_model)
    measured = scores(found)
    assert measured.kl is not None
    assert measured.same_top is not None
    p, q = (
        {d: log_probabilities(path, double=d) for d in (False, True)}
        for path in (reference_model, other_model)
    )
    exact = divergence(p[True], q[True])
    truth.assert_within_yardstick(measured.kl, divergence(p[False], q[False]), exact)
    top_p, top_q = (x[True].argmax(axis=2).reshape(-1) for x in (p, q))
    same = top_p == top_q
    assert 0 < same.sum() < len(same)
    np.testing.assert_array_equal(measured.same_top, same)
    targets = found.windows.targets.reshape(-1)
    np.testing.assert_array_equal(measured.right, top_q == targets)
    np.testing.assert_array_equal(measured.reference_right, top_p == targets)

    text = figures(found).text
    assert text.kl is not None
    assert text.same_top is not None
    assert text.same_top.count == same.sum()
    assert text.right.count == (top_q == targets).sum()
    assert text.kl.maximum == measured.kl.max()
    assert text.kl.median == np.median(measured.kl)
    assert text.kl.median < text.kl.p99 < text.kl.maximum
    assert text.kl.mean == bootstrap_mean(measured.kl)


@pytest.mark.parametrize("kind", ["qwen2", "gemma2", "granite", "qwen3-moe"])
def test_a_model_is_its_own_reference_bit_for_bit(kind: str, tmp_path: Path) -> None:
    """The reference's logits were made of hidden states by its output projection alone."""
    path = make_tiny_model(kind, tmp_path)
    found = run(path, path)
    measured = scores(found)
    assert measured.kl is not None
    assert measured.same_top is not None
    assert (measured.kl == 0).all()
    assert measured.same_top.all()
    np.testing.assert_array_equal(measured.nll, measured.reference_nll)
    assert measured.nll.std() > 0
    paths = figures(found).paths
    assert paths is not None
    assert (paths.share.count, paths.share.total) == (12, 12)


def test_what_the_cache_type_costs_is_measured(reference_model: Path) -> None:
    found = run(reference_model, reference_model, replace(SETTINGS, kv_cache_dtype="fp16"))
    kl = scores(found).kl
    assert kl is not None
    assert 0 < kl.mean() < 1e-3


def test_one_changed_weight_moves_every_figure(reference_model: Path, tmp_path: Path) -> None:
    """What is measured are the weights in the file."""
    changed = make_tiny_model("qwen2", tmp_path / "changed")
    file = changed / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].copy()
    tensors["model.norm.weight"][3] += 8
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})
    measured = scores(run(changed, reference_model))
    assert measured.kl is not None
    assert (measured.kl > 0).mean() > 0.9
    assert (measured.nll != measured.reference_nll).mean() > 0.9


def test_figures_without_a_reference_are_those_with_one(
    reference_model: Path, other_model: Path
) -> None:
    alone, beside = run(other_model), run(other_model, reference_model)
    np.testing.assert_array_equal(scores(alone).nll, scores(beside).nll)
    text = figures(alone).text
    assert (text.kl, text.same_top, text.perplexity_ratio) == (None, None, None)
    assert text.perplexity == figures(beside).text.perplexity
    assert beside.reference is not None
    reference = summarize(beside.reference, beside).text
    assert reference == figures(run(reference_model)).text


def test_threads_and_passes_change_no_bit(other_model: Path, reference_model: Path) -> None:
    """Windows longer than a pass, on one thread and on three."""
    settings = replace(SETTINGS, context=256, kv_cache_dtype="fp16")
    text = TEXT * 4
    one, three = (
        evaluate(
            other_model,
            text,
            reference=reference_model,
            settings=replace(settings, num_threads=n),
            observer=Recorder(),
        )
        for n in (1, 3)
    )
    for name in ("nll", "right", "reference_nll", "reference_right", "kl", "same_top"):
        np.testing.assert_array_equal(getattr(scores(one), name), getattr(scores(three), name))
    np.testing.assert_array_equal(one.candidates[0].tokens, three.candidates[0].tokens)


def test_bits_per_byte_count_the_bytes_of_what_is_scored(reference_model: Path) -> None:
    found = run(reference_model)
    checkpoint = open_checkpoint(reference_model, FAMILIES)
    assert checkpoint.tokenizer is not None
    tokenizer = Tokenizer.from_source(checkpoint.tokenizer)
    scored = [tokenizer.token_bytes(int(t)) for t in found.windows.targets.reshape(-1)]
    nbytes = len(b"".join(scored))
    assert found.bytes_scored == nbytes > len(scored)
    bits = scores(found).nll.mean() * len(scored) / nbytes / np.log(2)
    assert np.float32(figures(found).text.bits_per_byte.value) == np.float32(bits)


class OneAtATime(Recorder):
    """Counts the executors in memory when a load begins, and looks at the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.executors: dict[str, int] = {}
        self.files: list[Path] = []

    def running(self, model: str, stage: Stage, done: int, total: int, figures: str) -> None:
        super().running(model, stage, done, total, figures)
        if stage == "loading":
            self.executors.setdefault(model, executors())
        self.files += Path(tempfile.gettempdir()).iterdir()


def executors() -> int:
    return sum(type(each) is NativeExecutor for each in gc.get_objects())


def test_two_models_are_never_in_memory(
    long_model: Path,
    other_long_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gc.collect()
    before = executors()
    observer = OneAtATime()
    found = evaluate(
        other_long_model,
        TEXT,
        reference=long_model,
        battery=load_battery("short"),
        settings=replace(SETTINGS, speed=True),
        observer=observer,
    )
    expected = {"reference": before, other_long_model.name: before + 1}  # the reference's head
    assert observer.executors == expected, "a model is loaded while another is there"
    assert observer.files == [], "the states have a name"
    assert list(tmp_path.iterdir()) == []
    memory = found.memory
    width, vocab = KINDS["qwen2"].hidden_size, KINDS["qwen2"].vocab_size
    assert memory.states_on_disk == found.windows.targets.size * width * 4
    assert memory.reference_head == -(-vocab // 16) * 16 * width * 4
    assert memory.model_weights == memory.reference_weights
    assert memory.peak_resident > memory.model_weights
    (note,) = observer.notes
    assert f"{memory.states_on_disk / 2**20:,.1f} MiB" in note
    assert str(tmp_path) in note


def test_progress_counts_the_windows_of_both(reference_model: Path, other_model: Path) -> None:
    observer = Recorder()
    settings = replace(SETTINGS, windows=3)
    evaluate(other_model, TEXT, reference=reference_model, settings=settings, observer=observer)
    for name in ("reference", other_model.name):
        assert observer.of(name, "text") == [(1, 3), (2, 3), (3, 3)]
        assert observer.of(name, "paths")[-1] == (12, 12)


def test_another_size_of_vocabulary_is_refused(
    reference_model: Path, bos_model: Path, tmp_path: Path
) -> None:
    larger = make_model(replace(KINDS["qwen2"], vocab_size=400), tmp_path / "larger")
    observer = Recorder()
    with pytest.raises(
        InvalidParameterError, match=r"do not share a vocabulary \(400 and 336"
    ) as e:
        evaluate(larger, TEXT, reference=reference_model, settings=SETTINGS, observer=observer)
    assert str(larger) in str(e.value)
    assert str(reference_model) in str(e.value)
    assert observer.stages == [], "found out late"


def test_other_tokens_of_the_text_are_refused(reference_model: Path, tmp_path: Path) -> None:
    other = make_tiny_model("qwen2", tmp_path / "other")
    file = other / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:40]
    file.write_text(json.dumps(tokenizer))
    with pytest.raises(InvalidParameterError, match="different tokens of the text"):
        run(other, reference_model)


def test_another_beginning_is_refused(tmp_path: Path, bos_model: Path) -> None:
    config = replace(KINDS["qwen2"], vocab_size=KINDS["llama-mha"].vocab_size)
    plain = make_model(config, tmp_path / "plain")
    with pytest.raises(InvalidParameterError, match="texts begin with other tokens"):
        run(plain, bos_model)


def test_other_strings_of_tokens_that_the_text_has_not_are_refused(
    reference_model: Path, tmp_path: Path
) -> None:
    other = make_tiny_model("qwen2", tmp_path / "other")
    file = other / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    (first,) = [token for token in tokenizer["added_tokens"] if token["id"] == 2]
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["<|turn|>"] = vocabulary.pop(first["content"])
    first["content"] = "<|turn|>"
    file.write_text(json.dumps(tokenizer))
    observer = Recorder()
    with pytest.raises(InvalidParameterError) as caught:
        evaluate(other, TEXT, reference=reference_model, settings=SETTINGS, observer=observer)
    assert str(caught.value) == (
        f"{other} and {reference_model} do not share a vocabulary (token 2 is '<|turn|>' and "
        "'<|im_start|>'); a reference must be the same model in another precision"
    )
    assert observer.stages == [], "found out late"


def test_windows_longer_than_the_context_are_refused(
    reference_model: Path, other_model: Path
) -> None:
    observer = Recorder()
    settings = replace(SETTINGS, context=257)
    with pytest.raises(ContextLengthError, match=r"windows of 257 tokens .* 256 tokens"):
        evaluate(other_model, TEXT, settings=settings, observer=observer)
    assert observer.stages == []


def test_logits_that_overflow_are_refused_by_the_models_name(
    reference_model: Path, tmp_path: Path
) -> None:
    broken = make_tiny_model("qwen2", tmp_path / "broken")
    file = broken / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    tensors["lm_head.weight"] = np.full_like(tensors["lm_head.weight"], 3e38)
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})
    for model, reference in ((broken, reference_model), (reference_model, broken)):
        with pytest.raises(FarthingError, match="not finite") as caught:
            run(model, reference)
        assert str(broken) in str(caught.value)
