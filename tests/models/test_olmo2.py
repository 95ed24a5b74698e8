"""What is special to OLMo 2's files."""

from __future__ import annotations

import pytest

from farthing.errors import ModelFormatError
from farthing.models.olmo2 import FAMILY
from support.configurations import from_gguf


def test_windows_are_refused() -> None:
    assert from_gguf(FAMILY, {"attention.sliding_window": 0}).architecture == "olmo2"
    with pytest.raises(ModelFormatError, match=r"olmo2\.attention\.sliding_window: .* OLMo 3"):
        from_gguf(FAMILY, {"attention.sliding_window": 4096})
