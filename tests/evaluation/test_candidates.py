"""What is measured beside what, and what models are called."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from farthing.errors import FarthingError, ModelFormatError, UnsupportedOperationError
from farthing.evaluation.candidates import Candidate, ready
from farthing.evaluation.evaluate import Evaluation, evaluate
from farthing.evaluation.settings import Settings
from farthing.models.checkpoint import open_checkpoint
from farthing.models.registry import FAMILIES
from farthing.packing import PackOptions, quantize_model
from farthing.quantization import SCHEMES
from support.evaluations import TEXT, Recorder
from support.full_disk import files_of_at_most
from support.packing import pack
from support.sentencepiece_gguf import tiny_vocabulary
from support.tiny_gguf import write_gguf
from support.tiny_models import make_tiny_model

SETTINGS = Settings(context=32, positions=12, prompt_tokens=8, path_tokens=4, speed=False)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file of 8-bit codes."""
    folder = tmp_path_factory.mktemp("tiny")
    source = make_tiny_model("llama-mha", folder / "source")
    file = folder / "model.gguf"
    return write_gguf("llama-mha", source, file, "Q8_0", vocabulary=tiny_vocabulary())


def in_halves(path: Path, target: Path) -> Path:
    """Packs the codes of a model as fp16, its floats as they are."""
    tensors = open_checkpoint(path, FAMILIES).tensors
    codes = [name for name, t in tensors.items() if SCHEMES[t.stored_dtype].family != "dense"]
    assert codes
    quantize_model(path, target, PackOptions("keep", schemes=dict.fromkeys(codes, "f16")))
    return target


def run(
    model: Path,
    schemes: Sequence[str] = (),
    reference: Path | None = None,
    observer: Recorder | None = None,
) -> Evaluation:
    return evaluate(
        model,
        TEXT,
        schemes=schemes,
        reference=reference,
        settings=SETTINGS,
        observer=observer or Recorder(),
    )


def test_the_reference_of_codes_is_the_model_packed_in_fp16(
    quantized: Path, tmp_path: Path
) -> None:
    """Bit for bit: what is measured against it, its paths and its size."""
    observer = Recorder()
    found = run(quantized, ["w4g32"], observer=observer)
    half = in_halves(quantized, tmp_path / "half")
    beside = run(pack(quantized, tmp_path / "packed", "w4g32", "weighted"), reference=half)
    for name in ("nll", "right", "reference_nll", "reference_right", "kl", "same_top"):
        one, other = (getattr(each.candidates[0].scores, name) for each in (found, beside))
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(found.candidates[0].tokens, beside.candidates[0].tokens)
    assert found.paths is not None
    assert beside.paths is not None
    np.testing.assert_array_equal(found.paths.said, beside.paths.said)
    assert found.candidates[0].scores.kl is not None
    assert found.candidates[0].scores.kl.mean() > 0
    assert found.reference is not None
    assert beside.reference is not None
    size, expected = found.reference.size, beside.reference.size
    assert size.weights == expected.weights
    assert 16 <= size.bits_per_weight == expected.bits_per_weight < 32
    assert size.files == quantized.stat().st_size
    assert found.memory.reference_head == beside.memory.reference_head
    assert observer.notes[0] == "The reference is the file's own values as fp16"


def test_only_schemes_are_packed(
    quantized: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    observer = Recorder()
    run(quantized, ["w4g32", "keep"], observer=observer)
    assert {model for model, stage, _, _ in observer.stages if stage == "packing"} == {"w4g32"}
    (disk,) = [note for note in observer.notes if "MiB of disk in" in note and "until it" in note]
    assert disk.startswith("w4g32 takes ")
    loaded = observer.of("reference", "loading")
    assert loaded == sorted(loaded)
    assert len(loaded) > 10
    assert loaded[-1][0] == loaded[-1][1]
    assert list(tmp_path.iterdir()) == []


def test_a_packed_model_has_no_values_of_its_own(quantized: Path, tmp_path: Path) -> None:
    packed = pack(quantized, tmp_path / "packed", "w4g32")
    for scheme in ("w8row", "keep"):
        with pytest.raises(UnsupportedOperationError) as caught:
            run(packed, [scheme])
        assert str(caught.value) == (
            f"{packed}: is packed already; quantize what it was made from, 'model.gguf'"
        )


def test_a_missing_weight_is_named_before_anything_is_packed(tmp_path: Path) -> None:
    import safetensors.numpy

    model = make_tiny_model("qwen2", tmp_path / "model")
    tensors = safetensors.numpy.load_file(model / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    safetensors.numpy.save_file(tensors, model / "model.safetensors", {"format": "pt"})
    observer = Recorder()
    with pytest.raises(ModelFormatError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        run(model, ["w8row"], observer=observer)
    assert observer.stages == []


def be_ready(model: Path, scratch: Path) -> AbstractContextManager[Path]:
    return ready(
        Candidate("w8row", model, "w8row"),
        scratch,
        method="absmax",
        num_threads=1,
        note=lambda _: None,
        told=lambda done, total: None,
    )


def test_errors_of_what_is_packed_name_the_model_and_its_scheme(
    reference_model: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    (tmp_path / "scratch").mkdir()
    link.symlink_to(tmp_path / "scratch")
    for scratch in (tmp_path / "scratch", link):
        for there in (lambda path: path, Path.resolve):
            with pytest.raises(FarthingError) as caught, be_ready(reference_model, scratch) as path:
                raise ModelFormatError(there(path) / "config.json", "is cut")
            assert str(caught.value) == f"{reference_model} in w8row/config.json: is cut"
    other = ModelFormatError(reference_model, "is cut")
    with pytest.raises(ModelFormatError) as kept, be_ready(reference_model, link):
        raise other
    assert kept.value is other
    assert list(link.iterdir()) == []


def test_a_disk_that_cannot_hold_what_is_packed_is_named_and_left_clean(
    reference_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "farthing-evaluate-x"
    scratch.mkdir()
    told = rf"^{tmp_path}: packing w8row: {{}}; set TMPDIR to another folder$"
    becomes_full = "the file may not become larger; nothing was kept"
    with (
        pytest.raises(FarthingError, match=told.format(becomes_full)),
        files_of_at_most(10_000),
        be_ready(reference_model, scratch),
    ):
        pytest.fail("it was packed")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
    is_full = r"needs \d+ MiB more on its disk, which has 1 MiB"
    with (
        pytest.raises(FarthingError, match=told.format(is_full)),
        be_ready(reference_model, scratch),
    ):
        pytest.fail("it was packed")
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("models/tiny.gguf", "tiny.gguf"),
        ("models/reference", "models/reference"),
        ("/reference", "/reference"),
        (".", "here"),
        ("inner/..", "here"),
    ],
)
def test_a_model_is_called_by_its_file_but_never_reference(
    path: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert Candidate.of_files(Path(path)) == Candidate(name, Path(path))


def test_a_model_called_reference_is_told_from_the_reference(
    reference_model: Path, tmp_path: Path
) -> None:
    model = tmp_path / "reference"
    model.symlink_to(reference_model)
    observer = Recorder()
    settings = replace(SETTINGS, positions=0)
    found = evaluate(model, TEXT, reference=reference_model, settings=settings, observer=observer)
    assert found.reference is not None
    names = found.reference.name, found.candidates[0].name
    assert names == ("reference", f"{tmp_path.name}/reference")
    assert {name for name, *_ in observer.stages} == set(names)
