"""Each family with quantized weights: wherever a program multiplies, activations are int8.

A family whose blocks read something else than a norm's output takes another path there. Codes are
integers in the one scheme, indices into a codebook in the other.
"""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from farthing import _native
from farthing.program.reference import ReferenceExecutor
from farthing.program.step import SequenceRows, step_batch
from support.native_runs import NativeModel, assert_same_bits
from support.rounded_inputs import reference_weights
from support.tiny_gguf import write_gguf
from support.tiny_models import make_tiny_model
from support.truth import assert_within_yardstick

FAMILIES = [
    ("mistral", "llama"),
    ("qwen3", "qwen3"),
    ("smollm3", "smollm3"),
    ("phi3-longrope", "phi3"),
    ("olmo2", "olmo2"),
    ("granite", "granite"),
]
SCHEMES = ("Q8_0", "IQ4_NL")
CASES = [
    pytest.param((scheme, *family), id=f"{family[0]} {scheme}")
    for scheme in SCHEMES
    for family in FAMILIES
]
TOKENS = np.random.default_rng(3).integers(4, 331, 60).tolist()


@pytest.fixture(scope="module", params=CASES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NativeModel:
    scheme, kind, architecture = request.param
    directory = make_tiny_model(kind, tmp_path_factory.mktemp("tiny"))
    file = directory / "model.gguf"
    return NativeModel(write_gguf(kind, directory, file, scheme, architecture=architecture))


def test_weights_are_what_the_gguf_package_reads(model: NativeModel) -> None:
    """So the truth below is that of the file."""
    tensors = {t.name: t for t in gguf.GGUFReader(model.checkpoint.path).tensors}
    for ours, theirs in (("model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
                         ("model.norm.weight", "output_norm.weight")):  # fmt: skip
        stored = tensors[theirs]
        np.testing.assert_array_equal(
            model.tensors[ours].dequantize(), gguf.dequantize(stored.data, stored.tensor_type)
        )


def test_logits_err_as_int8_activations_do_and_no_more(model: NativeModel) -> None:
    rounds = [w for w in model.weights.values() if getattr(w, "activation_group", 0)]
    assert len(rounds) >= 4 * model.config.num_layers
    batch = step_batch([SequenceRows(TOKENS, 0, range(4), logits=len(TOKENS))])
    truth, rounded = (
        ReferenceExecutor(model.program, weights).run(batch).logits
        for weights in reference_weights(model)
    )
    assert (rounded != truth).any(axis=1).all()
    assert_within_yardstick(model.run().logits(TOKENS), rounded, truth)


def test_pieces_threads_and_instruction_sets_do_not_show_in_the_bits(model: NativeModel) -> None:
    whole = model.run().logits(TOKENS)
    for isa in _native.supported_isas():
        assert_same_bits(model.run(isa=isa, num_threads=3).logits(TOKENS, 11), whole)
    neighbours = [TOKENS[::-1], TOKENS, TOKENS[:7]]
    assert_same_bits(model.run(seed=1).batched_logits(neighbours, 23)[1], whole)
