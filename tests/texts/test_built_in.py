"""The texts are those that README.md says, and they reach who installs the package."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pytest

from farthing.texts import calibration_text, evaluation_text

ROOT = Path(__file__).parents[2]


def test_the_texts_are_those_that_were_measured_with() -> None:
    judged, calibrated = evaluation_text(), calibration_text()
    digests = [sha256(each.text.encode()).hexdigest()[:16] for each in (judged, calibrated)]
    assert digests == ["7c67b5985c6d0de1", "e4bc2b68ec76df90"]
    assert judged.text.startswith("EMMA\n")
    assert calibrated.text.rstrip().endswith("the view of defeating her.")
    assert [len(each.text) for each in (judged, calibrated)] == [883_028, 274_412]


def test_each_says_where_it_is_from_and_who_may_use_it() -> None:
    readme = files("farthing.texts").joinpath("README.md").read_text()
    for each, file in ((evaluation_text(), "emma.txt"), (calibration_text(), "persuasion.txt")):
        assert "r-cran-janeaustenr" in each.source
        assert "public domain" in each.licence
        assert f"`{file}`" in readme
        assert f"{len(each.text):,} bytes" in readme
    licence = files("farthing.texts").joinpath("LICENSE-janeaustenr").read_text()
    assert licence.startswith("MIT License")


@pytest.mark.slow
def test_a_wheel_has_all_that_is_read_as_data(tmp_path: Path) -> None:
    """Made without the native module, which takes minutes and is not what is asked."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps"]
    command += ["-q", "-C", "wheel.cmake=false", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    shipped = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "farthing"
    data = [
        path
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc", ".so", ".pyi"}
    ]
    assert {"emma.txt", "persuasion.txt", "README.md", "py.typed"} <= {p.name for p in data}
    missing = {str(p.relative_to(package.parent)) for p in data} - shipped
    assert not missing
