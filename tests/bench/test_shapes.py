"""Shapes by name and by numbers."""

from __future__ import annotations

import pytest

from farthing.bench.shapes import NAMES, parse_shape
from farthing.errors import InvalidParameterError
from farthing.models.registry import build_program

PARAMETERS = {  # of the published models, embeddings once where they are shared
    "0.5B": 494_032_768,
    "1.5B": 1_543_714_304,
    "3B": 3_085_938_688,
    "7B": 7_615_616_512,
    "14B": 14_770_033_664,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_named_shape_has_the_published_number_of_parameters(name: str) -> None:
    total = 0
    for slot in build_program(parse_shape(name.lower())).weights:
        size = 1
        for extent in slot.shape:
            size *= extent
        total += size
    assert total == PARAMETERS[name]


def test_a_shape_may_be_given_in_numbers() -> None:
    text = "layers=2, hidden=64,intermediate=96,heads=4,kv-heads=2,head_dim=32,vocab=50"
    c = parse_shape(text)
    assert (c.num_layers, c.hidden_size, c.intermediate_size) == (2, 64, 96)
    assert (c.num_heads, c.num_kv_heads, c.head_dim, c.vocab_size) == (4, 2, 32, 50)
    without = parse_shape("layers=2,hidden=64,intermediate=96,heads=4,kv_heads=2,vocab=50")
    assert without.head_dim == 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8B", r"'8B': must be one of 0.5B, 1.5B, 3B, 7B, 14B, or layers=N,"),
        ("", r"'': must be one of"),
        ("layers=2,hidden=64", "intermediate, heads, kv_heads, vocab missing"),
        ("layers=2,layers=3", "'layers' is twice"),
        ("depth=2", "'depth' is not one of layers, hidden"),
        ("layers=0", "layers must be a whole number from 1 to"),
        ("layers=x", "layers must be a whole number"),
        ("layers=1025", "layers must be a whole number from 1 to 1024"),
        ("layers=" + "9" * 5000, "layers must be a whole number from 1 to 1024"),
        ("layers=²", "layers must be a whole number"),
        ("layers=1,hidden=64,intermediate=9,heads=4,kv_heads=3,vocab=9", "4 heads cannot share 3"),
        ("layers=1,hidden=60,intermediate=9,heads=4,kv_heads=2,vocab=9", "head_dim=15 must be a"),
        (
            "layers=1,hidden=8192,intermediate=9,heads=1,kv_heads=1,vocab=9",
            "head_dim=8192 must be a multiple of 16, at most 4096",
        ),
    ],
)
def test_what_is_no_shape_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        parse_shape(text)
