"""What is measured is what is served: one code of the packed file, and all figures move."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.numpy

from farthing._native import Matrix
from farthing.evaluation.agreement import Agreement
from farthing.evaluation.evaluate import evaluate
from farthing.evaluation.settings import Settings
from farthing.evaluation.summary import summarize
from farthing.llm import LLM
from farthing.models.checkpoint import open_checkpoint
from farthing.models.checkpoint.packed_manifest import MANIFEST
from farthing.models.checkpoint.packed_tensor import PackedTensor
from farthing.models.registry import FAMILIES
from farthing.sampling.params import SamplingParams
from support.evaluations import TEXT, Recorder
from support.packing import pack

SETTINGS = Settings(context=32, positions=48, prompt_tokens=8, path_tokens=12, speed=False)
HEAD = "lm_head.weight"


@dataclass(frozen=True)
class Seen:
    perplexity: float
    agreement: Agreement
    said: list[int]  # at the positions of the reference's paths
    served: list[list[int]]


def look(model: Path, reference: Path) -> Seen:
    found = evaluate(model, TEXT, reference=reference, settings=SETTINGS, observer=Recorder())
    (candidate,) = found.candidates
    figures = summarize(candidate, found)
    assert found.paths is not None
    assert figures.paths is not None
    assert candidate.tokens is not None
    with LLM(model) as llm:
        params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
        outputs = llm.generate([p.tolist() for p in found.paths.prompts], params)
    return Seen(
        figures.text.perplexity.value,
        figures.paths,
        candidate.tokens.tolist(),
        [output.outputs[0].token_ids for output in outputs],
    )


def head_of(model: Path) -> PackedTensor:
    head = open_checkpoint(model, FAMILIES).tensors[HEAD]
    assert isinstance(head, PackedTensor)
    return head


def values(head: PackedTensor) -> np.ndarray:
    matrix = Matrix.from_packed(head.stored_dtype, *head.shape, head.mapped())
    return matrix.dequantize(0, head.rows)


def turn_code(model: Path, row: int, column: int) -> None:
    """Turns an 8-bit code of the output matrix around, as far as its row's scale lets it."""
    head = head_of(model)
    # csrc/kernels/linear/layout.h: a line of scales, then quads of 4 columns of 16 rows.
    block_bytes = head.nbytes // -(-head.rows // 16)
    place = row // 16 * block_bytes + 64 + column // 4 * 64 + row % 16 * 4 + column % 4
    with head.file.open("r+b") as file:
        file.seek(head.offset + place)
        code = int.from_bytes(file.read(1), signed=True)
        file.seek(head.offset + place)
        file.write((-127 if code > 0 else 127).to_bytes(1, signed=True))
    manifest = model / MANIFEST
    description = json.loads(manifest.read_text())
    description.pop("tensor_crc32", None)
    description.pop("file_crc32", None)
    manifest.write_text(json.dumps(description))


def test_one_changed_code_moves_perplexity_agreement_and_what_is_served(
    reference_model: Path, tmp_path: Path
) -> None:
    """That of the token said most often, in the channel that the final norm makes largest."""
    packed = pack(reference_model, tmp_path / "packed", "w8row")
    before = look(packed, reference_model)
    changed = tmp_path / "changed"
    shutil.copytree(packed, changed)
    row = int(np.bincount(before.said).argmax())
    norm = safetensors.numpy.load_file(reference_model / "model.safetensors")["model.norm.weight"]
    column = int(np.abs(norm).argmax())
    turn_code(changed, row, column)
    differ = np.argwhere(values(head_of(packed)) != values(head_of(changed)))
    assert differ.tolist() == [[row, column]], "not one code, and that one"

    after = look(changed, reference_model)
    assert after.perplexity != before.perplexity
    assert after.agreement.share.count < before.agreement.share.count
    assert after.said != before.said
    assert after.served != before.served
    assert look(packed, reference_model) == before, "it would differ anyhow"
