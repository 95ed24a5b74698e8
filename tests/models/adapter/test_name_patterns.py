"""Patterns of ranks and alphas: those of the ``peft`` library, within bounds."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from peft.utils.other import get_pattern_key

from farthing.errors import ModelFormatError
from farthing.models.adapter.name_patterns import MAX_EXPRESSIONS, NamePatterns
from farthing.models.checkpoint.fields import Fields

pytestmark = pytest.mark.usefixtures("others_garbage")

NAMES = [
    f"model.layers.{layer}.{module}_proj"
    for layer in (0, 1, 2, 10, 11, 21)
    for module in ("self_attn.q", "self_attn.k", "self_attn.o", "mlp.up", "mlp.down")
] + ["lm_head"]


def patterns(*keys: str) -> NamePatterns:
    values = {key: float(i) for i, key in enumerate(keys)}
    return NamePatterns(Fields(Path("adapter_config.json"), values), values)


@pytest.mark.parametrize(
    "keys",
    [
        (),
        ("q_proj",),
        ("self_attn.q_proj", "q_proj", "layers.1.self_attn.q_proj"),
        ("layers.1.self_attn.q_proj", "q_proj"),
        ("1.self_attn.q_proj", "_proj", "proj"),
        ("^model.layers.1.mlp.up_proj", "^mlp.up_proj", "^lm_head$", "down_proj$"),
        (r"layers\.[02]\.mlp\..*", "up_proj"),
        ("up_proj", r"layers\.[02]\.mlp\..*"),
        (r"layers\.(1|21)\.self_attn\.[qk]_proj", r".*_proj"),
        (r"model\.layers\.1\d?\.(self_attn|mlp)\..+",),
        (".*", "lm_head"),
        ("lm_head", "model"),
    ],
    ids=repr,
)
def test_a_name_takes_the_value_that_peft_gives_it(keys: tuple[str, ...]) -> None:
    ours = patterns(*keys)
    for name in NAMES:
        key = get_pattern_key(keys, name)
        assert ours.find(name) == (keys.index(key) if key in keys else None), name


@pytest.mark.parametrize(
    "key",
    [
        "(a+)+b",
        "(a|a)*",
        "(a|b)?{3}",
        "a{1,9999}",
        "(?=x)y",
        "(?P<n>a)",
        r"(a)\1",
        ".*.*.*x",
        "x(",
        "[a-",
        "a" * 1000 + "*",
    ],
)
def test_an_expression_that_could_take_long_is_refused_by_name(key: str) -> None:
    with pytest.raises(ModelFormatError) as caught:
        patterns("q_proj", key)
    assert caught.value.field == key[:256]


def test_the_number_of_expressions_is_bounded() -> None:
    keys = [f"layers.[{i}].*" for i in range(MAX_EXPRESSIONS)]
    patterns(*keys)
    with pytest.raises(ModelFormatError, match=f"more than {MAX_EXPRESSIONS}"):
        patterns(*keys, "one.*")


def test_the_worst_that_is_taken_takes_no_time() -> None:
    ours = patterns(*(f".*{'.' * i}.*!" for i in range(MAX_EXPRESSIONS)))
    start = time.process_time()
    for layer in range(100):
        assert ours.find(f"model.layers.{layer}.self_attn.q_proj") is None
    assert time.process_time() - start < 2


def test_thousands_of_names_are_looked_up_at_once() -> None:
    names = [f"model.layers.{i}.mlp.{part}_proj" for i in range(4096) for part in ("up", "down")]
    ours = patterns(*names)
    start = time.process_time()
    assert [ours.find(name) for name in names] == list(range(len(names)))
    assert time.process_time() - start < 2
