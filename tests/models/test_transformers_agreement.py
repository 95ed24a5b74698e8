"""Every kind of tiny model: the reference executor against transformers in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from farthing.config import ModelConfig, Rope
from farthing.models.checkpoint import open_checkpoint
from farthing.models.names import WeightNames
from farthing.models.registry import (
    FAMILIES,
    build_program,
    find_family,
    supported_architectures,
)
from farthing.program.builder import ProgramBuilder
from farthing.program.kv_types import KvDtype
from farthing.program.ops import Attention, Value, WeightSlot
from farthing.program.reference import ReferenceExecutor
from farthing.program.step import SequenceRows, step_batch
from support.tiny_models import KINDS, make_tiny_model
from support.truth import (
    assert_equal_in_float64,
    assert_greedy,
    in_float64,
    load_transformers,
    logits,
)

LENGTH = 100  # about three times the original context of the scaled kinds
BLOCKS = range(LENGTH // 16 + 1)


@dataclass(frozen=True)
class Case:
    config: ModelConfig
    weights: Mapping[str, NDArray[np.floating]]
    model: torch.nn.Module
    tokens: list[int]
    float32: NDArray[np.float64]  # transformers' logits (LENGTH, vocab) of tokens
    truth: NDArray[np.float64]

    def executor(
        self, config: ModelConfig | None = None, kv_dtype: KvDtype | None = None
    ) -> ReferenceExecutor:
        program = build_program(config or self.config)
        return ReferenceExecutor(program, self.weights.__getitem__, kv_dtype=kv_dtype)


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    kind: str = request.param
    directory: Path = make_tiny_model(kind, tmp_path_factory.mktemp("tiny") / kind)
    model = load_transformers(directory)
    config = KINDS[kind]
    tokens = np.random.default_rng(1).integers(0, config.vocab_size, LENGTH).tolist()
    checkpoint = open_checkpoint(directory, FAMILIES)
    weights = {name: tensor.dequantize() for name, tensor in checkpoint.tensors.items()}
    truth = logits(in_float64(model), tokens)
    return Case(config, weights, model, tokens, logits(model, tokens), truth)


def run(
    executor: ReferenceExecutor,
    tokens: Sequence[int],
    position: int = 0,
    blocks: Sequence[int] = BLOCKS,
) -> NDArray[np.floating]:
    return executor.run(
        step_batch([SequenceRows(tokens, position, blocks, logits=len(tokens))])
    ).logits


def test_every_architecture_has_a_tiny_kind() -> None:
    assert {config.architecture for config in KINDS.values()} == set(supported_architectures())


def test_the_program_needs_exactly_the_checkpoints_tensors(case: Case) -> None:
    slots = {slot.name: slot.shape for slot in build_program(case.config).weights}
    assert slots == {name: array.shape for name, array in case.weights.items()}


def test_whole_prompt_equals_transformers(case: Case) -> None:
    assert_equal_in_float64(run(case.executor(), case.tokens), case.float32, case.truth)


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
def test_prompt_in_chunks_equals_transformers(case: Case, chunk: int) -> None:
    executor = case.executor()
    parts = [
        run(executor, case.tokens[start : start + chunk], start)
        for start in range(0, LENGTH, chunk)
    ]
    assert_equal_in_float64(np.concatenate(parts), case.float32, case.truth)


def test_sequences_of_a_batch_equal_transformers_alone(case: Case) -> None:
    lengths = [1, 16, 37, LENGTH]
    starts = [0, 3, 11, 0]
    pieces = [
        case.tokens[start : start + length] for start, length in zip(starts, lengths, strict=True)
    ]
    # Blocks in an order of their own: each sequence takes every fourth, from the top down.
    tables = [[4 * block + i for block in reversed(BLOCKS)] for i in range(4)]
    batch = step_batch(
        [
            SequenceRows(piece, 0, table, logits=len(piece))
            for piece, table in zip(pieces, tables, strict=True)
        ]
    )
    result = np.split(case.executor().run(batch).logits, batch.row_offsets[1:-1])
    double = in_float64(case.model)
    for piece, candidate in zip(pieces, result, strict=True):
        assert_equal_in_float64(candidate, logits(case.model, piece), logits(double, piece))


def test_sequences_with_one_prefix_can_share_its_blocks(case: Case) -> None:
    executor = case.executor()
    run(executor, case.tokens[:32], blocks=[5, 2])
    rest = run(executor, case.tokens[32:], 32, blocks=[5, 2, 9, 10, 11, 12, 13])
    again = run(executor, case.tokens[32:], 32, blocks=[5, 2, 20, 21, 22, 23, 24])
    assert_equal_in_float64(rest, case.float32[32:], case.truth[32:])
    assert np.array_equal(rest, again)


def test_greedy_tokens_equal_transformers(case: Case) -> None:
    executor, tokens = case.executor(), case.tokens[:20]
    chunk, position = tokens, 0
    generated: list[int] = []
    while len(generated) < 64:
        token = int(run(executor, chunk, position)[-1].argmax())
        generated.append(token)
        position, chunk = position + len(chunk), [token]
    assert_greedy(case.model, tokens, generated)
    assert len(set(generated)) > 8, "degenerate: the model repeats itself"
    generated[63] = (generated[63] + 1) % case.config.vocab_size
    with pytest.raises(AssertionError):
        assert_greedy(case.model, tokens, generated)


def assert_wrong(case: Case, config: ModelConfig) -> None:
    assert_executor_wrong(case, case.executor(config))


def assert_executor_wrong(case: Case, executor: ReferenceExecutor) -> None:
    candidate = run(executor, case.tokens)
    with pytest.raises(AssertionError, match="error"):
        assert_equal_in_float64(candidate, case.float32, case.truth)


def test_a_slightly_wrong_number_fails_the_yardstick(case: Case) -> None:
    rope = case.config.rope
    assert_wrong(case, replace(case.config, rope=replace(rope, theta=rope.theta * (1 + 1e-7))))
    assert_wrong(case, replace(case.config, rms_norm_eps=case.config.rms_norm_eps * 1.0001))


@pytest.mark.parametrize(
    "case", [kind for kind, config in KINDS.items() if config.rope.scaling], indirect=True
)
def test_without_rope_scaling_the_yardstick_fails(case: Case) -> None:
    assert_wrong(case, replace(case.config, rope=replace(case.config.rope, scaling=None)))


@pytest.mark.parametrize(
    "case", [kind for kind, config in KINDS.items() if config.sliding_window], indirect=True
)
def test_another_window_fails_the_yardstick(case: Case) -> None:
    assert case.config.sliding_window is not None
    assert_wrong(case, replace(case.config, sliding_window=case.config.sliding_window + 1))
    assert_wrong(case, replace(case.config, sliding_window=None))


@pytest.mark.parametrize(
    "case", [kind for kind, config in KINDS.items() if config.experts], indirect=True
)
def test_another_choice_of_experts_fails_the_yardstick(case: Case) -> None:
    experts = case.config.experts
    assert experts is not None
    one_less = replace(experts, per_token=experts.per_token - 1)
    for wrong in (one_less, replace(experts, normalize=not experts.normalize)):
        assert_wrong(case, replace(case.config, experts=wrong))


@pytest.mark.parametrize("case", ["llama-biases", "smollm3-sliding"], indirect=True)
def test_without_biases_the_yardstick_fails(case: Case) -> None:
    assert_wrong(case, replace(case.config, attention_bias=False))
    assert_wrong(case, replace(case.config, mlp_bias=False))


@pytest.mark.parametrize("case", ["smollm3", "smollm3-sliding"], indirect=True)
def test_with_rope_in_every_layer_the_yardstick_fails(case: Case) -> None:
    assert_wrong(case, replace(case.config, rope_layers=()))


@pytest.mark.parametrize("case", ["phi3-longrope", "phi4-mini"], indirect=True)
def test_with_the_other_factors_or_without_magnitude_the_yardstick_fails(case: Case) -> None:
    rope, scaling = case.config.rope, case.config.rope.scaling
    assert scaling is not None
    swapped = replace(scaling, factors=scaling.short_factors, short_factors=scaling.factors)
    for wrong in (swapped, replace(scaling, magnitude=1.0)):
        assert_wrong(case, replace(case.config, rope=replace(rope, scaling=wrong)))


@pytest.mark.parametrize("case", ["phi4-mini"], indirect=True)
def test_with_whole_heads_rotated_the_yardstick_fails(case: Case) -> None:
    rope, scaling = case.config.rope, case.config.rope.scaling
    assert scaling is not None
    wider = replace(scaling, short_factors=(*scaling.short_factors, 3.0, 3.0, 3.0, 3.0))
    assert_wrong(case, replace(case.config, rope=replace(rope, dim=32, scaling=wider)))


@pytest.mark.parametrize("case", ["granite"], indirect=True)
@pytest.mark.parametrize(
    ("scale", "value"),
    [
        ("attention_scale", None),
        ("embedding_scale", 1.0),
        ("residual_scale", 1.0),
        ("logit_scale", 1.0),
    ],
)
def test_without_a_scale_the_yardstick_fails(case: Case, scale: str, value: float | None) -> None:
    assert_wrong(case, replace(case.config, **{scale: value}))


@pytest.mark.parametrize("case", ["qwen3", "olmo2"], indirect=True)
@pytest.mark.parametrize("norm", ["q_norm", "k_norm"])
def test_without_norms_of_q_or_k_the_yardstick_fails(case: Case, norm: str) -> None:
    program = build_program(case.config)
    ops = [replace(op, **{norm: None}) if isinstance(op, Attention) else op for op in program.ops]
    executor = ReferenceExecutor(replace(program, ops=tuple(ops)), case.weights.__getitem__)
    assert_executor_wrong(case, executor)


@pytest.mark.parametrize("case", ["olmo2"], indirect=True)
def test_with_each_head_normed_by_itself_the_yardstick_fails(case: Case) -> None:
    def of_one_head(name: str) -> NDArray[np.floating]:
        whole = case.weights[name]
        return whole[: case.config.head_dim] if name.endswith("q_norm.weight") else whole

    assert_executor_wrong(case, ReferenceExecutor(build_program(case.config), of_one_head))


@pytest.mark.parametrize("length", [32, 33])
def test_longrope_is_chosen_as_transformers_does_for_a_sequence_of_the_whole_context(
    length: int, tmp_path: Path
) -> None:
    """32 is the original context. transformers is left as it is here."""
    config = KINDS["phi3-longrope"]
    directory = make_tiny_model("phi3-longrope", tmp_path)
    checkpoint = open_checkpoint(directory, FAMILIES)
    model = load_transformers(directory, as_it_is=True)
    tokens = np.random.default_rng(1).integers(0, config.vocab_size, length).tolist()
    float32, truth = logits(model, tokens), logits(in_float64(model), tokens)

    def at_context(context_length: int) -> NDArray[np.floating]:
        program = build_program(checkpoint.config, context_length=context_length)
        return run(ReferenceExecutor(program, lambda n: checkpoint.tensors[n].dequantize()), tokens)

    assert_equal_in_float64(at_context(length), float32, truth)
    with pytest.raises(AssertionError, match="error"):
        assert_equal_in_float64(at_context(65 - length), float32, truth)


GEMMA_MISTAKES: dict[str, dict[str, Any]] = {
    "embeddings not scaled": {"embedding_scale": 1.0},
    "scores scaled by the width of a head": {"attention_scale": None},
    "scores not capped": {"attention_softcap": None},
    "another cap of scores": {"attention_softcap": 5.01},
    "logits not capped": {"logit_softcap": None},
    "SiLU": {"activation": "silu"},
    "one rope for all layers": {"local_rope": None},
    "the local rope in all layers": {"rope": Rope(10_000.0, 32)},
    "sliding in other layers": {"sliding_layers": (False, True, True, True)},
    "q and k without norms": {"architecture": "gemma2"},
}


def with_mistake(config: ModelConfig, mistake: str) -> ModelConfig:
    return replace(config, **GEMMA_MISTAKES[mistake])


@pytest.mark.parametrize(
    ("case", "mistake"),
    [
        (kind, mistake)
        for kind, config in KINDS.items()
        if kind.startswith("gemma")
        for mistake in GEMMA_MISTAKES
        if build_program(with_mistake(config, mistake)) != build_program(config)
    ],
    indirect=["case"],
)
def test_each_part_of_gemma_shows_in_the_yardstick(case: Case, mistake: str) -> None:
    assert_wrong(case, with_mistake(case.config, mistake))


class OneNormLess(ProgramBuilder):
    """Passes over the norms of one name."""

    def __init__(self, skipped: str) -> None:
        super().__init__()
        self.skipped = skipped

    def rms_norm(self, x: Value, weight: WeightSlot, eps: float) -> Value:
        return x if self.skipped in weight.name else super().rms_norm(x, weight, eps)


@pytest.mark.parametrize("norm", ["input", "post_attention", "pre_feedforward", "post_feedforward"])
@pytest.mark.parametrize("case", ["gemma2", "gemma3"], indirect=True)
def test_each_norm_of_a_sandwich_shows_in_the_yardstick(case: Case, norm: str) -> None:
    builder = OneNormLess(f".{norm}_layernorm")
    build = find_family(case.config.architecture).build
    program = builder.finish(build(builder, case.config, WeightNames(case.config)))
    assert_executor_wrong(case, ReferenceExecutor(program, case.weights.__getitem__))


@pytest.mark.parametrize("case", ["gemma2", "gemma3"], indirect=True)
def test_norms_as_they_are_stored_fail_the_yardstick(case: Case) -> None:
    stored = {n: w - 1 if n.endswith("norm.weight") else w for n, w in case.weights.items()}
    executor = ReferenceExecutor(build_program(case.config), stored.__getitem__)
    assert_executor_wrong(case, executor)


# A rounding can send a row to another expert, which no type accounts for.
@pytest.mark.parametrize(
    "case", [kind for kind, config in KINDS.items() if config.experts is None], indirect=True
)
def test_rounding_stored_keys_and_values_costs_what_the_type_costs(case: Case) -> None:
    types: tuple[KvDtype | None, ...] = (None, "fp32", "fp16", "int8", "int4")
    exact, *stored = (run(case.executor(kv_dtype=dtype), case.tokens) for dtype in types)
    single_error, half_error, codes_error, nibbles_error = (
        np.sqrt(np.mean((x - exact) ** 2)) for x in stored
    )
    # 24 bits against 11: a factor of 8192, give or take a factor of 4.
    assert 2**11 < half_error / single_error < 2**15
    # Steps of 1/127 of a head's largest, against at most 1/1024 of each number itself.
    assert 2**2 < codes_error / half_error < 2**8
    # And of 1/7: a factor of 18, as long as the errors are small against what they are of.
    assert 2**2 < nibbles_error / codes_error < 2**6
