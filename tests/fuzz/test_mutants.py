"""Damaged model files load or are refused by name: never a crash, a hang or a flood of memory.

Each run is a process of its own, so that an abort or a signal is a failure of the test and not of
the whole run; inside, every mutant is opened, checked, packed and played for a token.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import corpus

ORDINARY, MANY = 150, 2600
SECONDS_OF_A_MUTANT = 2.0


def run(format_name: str, folder: Path, first: int, count: int) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "fuzz.child", format_name, str(folder), str(first), str(count)],
        capture_output=True,
        text=True,
        timeout=60 + count * SECONDS_OF_A_MUTANT,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert result.returncode == 0, (result.returncode, result.stdout[-500:], result.stderr[-3000:])
    return result.stdout


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undamaged models."""
    folder = tmp_path_factory.mktemp("corpus")
    corpus.write(folder)
    return folder


def assert_all_judged(report: str, count: int, format_name: str) -> None:
    """Most mutants are refused; some are good enough to run, so that running is tried too."""
    words = dict(pair.split("=") for pair in report.split())
    refused, ran = int(words["refused"]), int(words["ran"])
    assert refused + ran == count, report
    assert refused > count // 5, report
    assert ran > 0, report


@pytest.mark.parametrize("format_name", corpus.FORMATS)
def test_mutants(format_name: str, models: Path, tmp_path: Path) -> None:
    shutil.copytree(models, tmp_path / "models")
    report = run(format_name, tmp_path / "models", 0, ORDINARY)
    assert_all_judged(report, ORDINARY, format_name)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("format_name", corpus.FORMATS)
def test_many_mutants(format_name: str, models: Path, tmp_path: Path) -> None:
    shutil.copytree(models, tmp_path / "models")
    report = run(format_name, tmp_path / "models", 10**6, MANY)
    assert_all_judged(report, MANY, format_name)
