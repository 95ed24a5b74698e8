"""Mixtures of experts: a row's bits depend on the row alone, in every format of the weights."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing import _native
from farthing.program.reference import ReferenceExecutor
from farthing.program.step import SequenceRows, step_batch
from support.moe_gguf import write_moe_gguf
from support.native_runs import Logits, NativeModel, NativeRun, assert_same_bits
from support.packing import pack
from support.rounded_inputs import log_softmax, mean_divergence, reference_weights
from support.tiny_models import make_tiny_model

FORMATS: dict[str, dict[str, str] | None] = {
    "safetensors": None,
    "gguf f32": {},
    "gguf q8_0": {"": "Q8_0"},
    # Stacks of one layer in different families, as mixed files have them.
    "gguf mixed": {"": "Q8_0", "ffn_gate_exps": "Q4_0", "ffn_up_exps": "BF16"},
    # The router is stored as integers here, and decides in floats all the same.
    "gguf q4": {
        "": "Q4_0",
        "ffn_gate_exps": "Q4_1",
        "ffn_up_exps": "Q5_1",
        "ffn_gate_inp": "Q8_0",
    },
    # Each expert has a codebook of its own.
    "packed km4": {"": "km4g32"},
}
INTEGER = [name for name, types in FORMATS.items() if types]
BATCH = 33


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NativeModel]:
    """The same model in every format."""
    directory = make_tiny_model("qwen3-moe", tmp_path_factory.mktemp("tiny"))
    made = {}
    for name, types in FORMATS.items():
        path = directory
        if types is not None and name.startswith("packed"):
            path = pack(directory, directory / name, types[""])
        elif types is not None:
            path = write_moe_gguf(directory, directory / f"{name}.gguf", types)
        made[name] = NativeModel(path)
    return made


@pytest.fixture(scope="module", params=FORMATS)
def model(request: pytest.FixtureRequest, models: dict[str, NativeModel]) -> NativeModel:
    return models[request.param]


@pytest.fixture(scope="module")
def sequences(model: NativeModel) -> list[list[int]]:
    """Of different lengths, each with two tokens still to come one by one."""
    rng = np.random.default_rng(3)
    lengths = [3 + i % 8 for i in range(BATCH - 1)] + [35]
    return [rng.integers(0, model.config.vocab_size, n).tolist() for n in lengths]


@pytest.fixture(scope="module")
def alone(model: NativeModel, sequences: list[list[int]]) -> list[Logits]:
    """Logits (n, vocab) of each sequence by itself, token by token."""
    run = model.run(tokens=4096)
    return [run.logits(tokens, 1) for tokens in sequences]


def test_alone_is_as_in_a_batch_of_33(
    model: NativeModel, sequences: list[list[int]], alone: list[Logits]
) -> None:
    run = model.run(tokens=4096, seed=1, max_rows=1024)
    tables = [run.new_sequence(len(tokens)) for tokens in sequences]
    prompts = [
        SequenceRows(tokens[:-2], 0, table, logits=len(tokens) - 2)
        for tokens, table in zip(sequences, tables, strict=True)
    ]
    parts = [[logits] for logits in run.step(prompts)]
    for back in (2, 1):  # a batch of 33 single rows
        rows = [
            SequenceRows([tokens[-back]], len(tokens) - back, table)
            for tokens, table in zip(sequences, tables, strict=True)
        ]
        for part, logits in zip(parts, run.step(rows), strict=True):
            part.append(logits)
    for part, expected in zip(parts, alone, strict=True):
        assert_same_bits(np.concatenate(part), expected)


@pytest.mark.parametrize("num_threads", [1, 3, 64])
def test_any_number_of_threads_gives_the_same_bits(
    model: NativeModel, sequences: list[list[int]], alone: list[Logits], num_threads: int
) -> None:
    longest = sequences[-1]
    assert_same_bits(model.run(num_threads=num_threads).logits(longest, 9), alone[-1])


@pytest.mark.parametrize("isa", _native.supported_isas())
def test_every_instruction_set_gives_the_same_bits(
    model: NativeModel, sequences: list[list[int]], alone: list[Logits], isa: str
) -> None:
    assert_same_bits(model.run(isa=isa).logits(sequences[-1], 11), alone[-1])


def test_more_rows_than_a_tile_takes_of_one_expert_give_the_same_bits(model: NativeModel) -> None:
    """620 rows on 2 of 8 experts are 155 each on average; a tile takes 128."""
    tokens = np.random.default_rng(4).integers(0, model.config.vocab_size, 31).tolist()
    expected = model.run().logits(tokens)
    run = model.run(tokens=2048, max_rows=1024)
    copies = run.batched_logits([tokens] * 20, len(tokens))
    for logits in copies:
        assert_same_bits(logits, expected)


def rows_of(run: NativeRun, tokens: list[int]) -> Logits:
    """Each token as a sequence of its own, one pass."""
    tables = [run.new_sequence(1) for _ in tokens]
    steps = [SequenceRows([t], 0, table) for t, table in zip(tokens, tables, strict=True)]
    return np.concatenate(run.step(steps))


def float_matrix(values: NDArray[np.float32]) -> _native.Matrix:
    matrix = _native.Matrix("f32", *values.shape)
    matrix.pack(0, values.view(np.uint8))
    return matrix


def test_a_row_that_is_nan_stays_alone(model: NativeModel) -> None:
    """Its request gets no number; its neighbours do not notice (faults B18, X26)."""
    name = "model.embed_tokens.weight"
    table = np.array(reference_weights(model)[0](name), np.float32)
    with patch.dict(model.weights, {name: float_matrix(table)}):
        before = rows_of(model.run(), list(range(40)))
    table[7, 3], table[9, :] = np.nan, np.inf
    with patch.dict(model.weights, {name: float_matrix(table)}):
        after = rows_of(model.run(), list(range(40)))
    broken = np.isin(np.arange(40), [7, 9])
    assert np.isnan(after[broken]).all()
    assert_same_bits(after[~broken], before[~broken])


def test_a_changed_expert_changes_the_rows_that_visit_it_and_no_others(
    models: dict[str, NativeModel],
) -> None:
    """The inverse test: rows do go to different experts, and a wrong expert would show."""
    model, tokens = models["safetensors"], list(range(200))
    before = rows_of(model.run(tokens=4096), tokens)
    visits = np.zeros(len(tokens), int)
    for expert in range(8):
        name = f"model.layers.2.mlp.experts.{expert}.up_proj.weight"
        values = model.checkpoint.tensors[name].dequantize().copy()
        values[5] *= 1.5
        with patch.dict(model.weights, {name: float_matrix(values)}):
            changed = (rows_of(model.run(tokens=4096), tokens) != before).any(axis=1)
        assert 0 < changed.mean() < 1
        visits += changed
    assert (visits == 2).all()


def test_gguf_and_safetensors_give_the_same_bits(models: dict[str, NativeModel]) -> None:
    one, other = models["safetensors"], models["gguf f32"]
    assert one.config.experts == other.config.experts
    tokens = np.random.default_rng(5).integers(0, one.config.vocab_size, 60).tolist()
    assert_same_bits(other.run().logits(tokens), one.run().logits(tokens))


@pytest.mark.parametrize("name", INTEGER)
def test_integer_experts_err_as_int8_activations_do_and_no_more(
    models: dict[str, NativeModel], name: str
) -> None:
    model = models[name]
    tokens = np.random.default_rng(6).integers(0, model.config.vocab_size, 200).tolist()
    rows = step_batch([SequenceRows(tokens, 0, range(13), logits=200)])
    truth, rounding = (
        log_softmax(ReferenceExecutor(model.program, weights).run(rows).logits)
        for weights in reference_weights(model)
    )
    rounded = mean_divergence(truth, rounding)
    served = mean_divergence(truth, log_softmax(model.run(kv_dtype="fp32").logits(tokens)))
    assert rounded > 1e-5, "the yardstick rounds nothing"
    assert 1e-5 < served <= 2 * rounded


def test_a_router_stored_as_integers_is_served_in_floats(models: dict[str, NativeModel]) -> None:
    model = models["gguf q4"]
    name = "model.layers.0.mlp.gate.weight"
    router, stored = model.weights[name], model.checkpoint.tensors[name]
    assert isinstance(router, _native.Matrix)
    assert (stored.dtype, router.scheme) == ("q8_0", "f32")
    assert np.array_equal(router.dequantize(0, router.rows), stored.dequantize())
