"""A tiny model with outliers where tests know of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.planted_outliers import make_planted_model


@pytest.fixture(scope="session")
def planted_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_planted_model(tmp_path_factory.mktemp("tiny") / "planted")
