"""What several tests of the engine begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.prefix_caches import Cache, branches


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The file of a prefix cache with nine blocks."""
    cache = Cache()
    branches(cache)
    assert cache.write(tmp_path / "saved") == 9
    return tmp_path / "saved"
