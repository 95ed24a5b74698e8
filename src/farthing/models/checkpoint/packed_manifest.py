"""``farthing.json``: what a packed directory says about itself.

The format: ``docs/decisions/packed-directories.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NoReturn

from farthing.errors import ModelFormatError
from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.json_file import read_json_fields
from farthing.program.numerics import NUMERICS_VERSION, fingerprint
from farthing.quantization import SCHEMES
from farthing.quantization.carrier import carries

MANIFEST = "farthing.json"
FORMAT = "farthing packed weights"
LAYOUT_VERSION = 1
"""Raised by every change of the layout of packed bytes (``csrc/kernels/linear/layout.h``)."""

WRITTEN_BY = "farthing"
"""The ``format`` in the metadata of its safetensors files."""

METADATA = "metadata.gguf"
"""The source's metadata without its tensors, where the source is a GGUF file."""

ALIGNMENT = 64
"""Bytes. Matrices start at multiples of it in their file, and so in memory."""

_LONGEST = 1 << 31  # rows and columns of a matrix
_METHODS = ("absmax", "mse", "weighted", "none")
_TENSOR_SUMS, _FILE_SUMS = "tensor_crc32", "file_crc32"
_SUM = re.compile(r"[0-9a-f]{8}")
_CALIBRATION = "calibration"
_CARRIED = "carried"
_SHA256 = re.compile(r"[0-9a-f]{64}")

SourceFormat = Literal["gguf", "huggingface"]
CalibrationUse = Literal["mixed"]


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """One matrix: its scheme, rows and columns, and a codebook that is not the scheme's."""

    scheme: str  # of the bytes, what kernels compute with
    rows: int
    cols: int
    codebook: tuple[int, ...] | None = None
    carries: str | None = None  # the scheme whose values those are; None: the same


@dataclass(frozen=True, slots=True)
class Checksums:
    """CRC-32 of what was written, eight hexadecimal digits each."""

    tensors: Mapping[str, str]  # matrices and vectors, by canonical name
    files: Mapping[str, str]  # all but the safetensors files and the manifest, by file name


@dataclass(frozen=True, slots=True)
class Calibration:
    """The text that was measured on while a model was packed; not one to judge the model by."""

    use: CalibrationUse  # what was decided by it; mixed: the scheme of every matrix
    name: str
    sha256: str  # of its UTF-8 bytes, 64 hexadecimal digits


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is packed, how, and what it was made from."""

    matrices: Mapping[str, PackedEntry]  # by canonical name
    method: str  # how scales were chosen (quantization/rounding.py); none: codes were kept
    source: str  # name of the file or directory
    source_format: SourceFormat  # whose description lies beside the tensors
    source_bytes: int
    created_by: str  # tool and version
    numerics_version: int  # of the tool
    fingerprint: str
    checksums: Checksums | None = None  # None: made before there were any
    calibration: Calibration | None = None  # None: no text was needed

    def to_json(self) -> str:
        """The text of the file."""
        matrices = {
            name: [
                entry.scheme,
                entry.rows,
                entry.cols,
                *([entry.codebook] if entry.codebook else ()),
            ]
            for name, entry in self.matrices.items()
        }
        facts = {
            "format": FORMAT,
            "layout_version": LAYOUT_VERSION,
            "numerics_version": self.numerics_version,
            "fingerprint": self.fingerprint,
            "method": self.method,
            "source": self.source,
            "source_format": self.source_format,
            "source_bytes": self.source_bytes,
            "created_by": self.created_by,
        }
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in facts.items()]
        if self.calibration is not None:
            lines.append(_object(_CALIBRATION, asdict(self.calibration)))
        lines.append(_object("matrices", matrices))
        carried = {n: entry.carries for n, entry in self.matrices.items() if entry.carries}
        if carried:
            lines.append(_object(_CARRIED, carried))
        if self.checksums is not None:
            lines.append(_object(_FILE_SUMS, self.checksums.files))
            lines.append(_object(_TENSOR_SUMS, self.checksums.tensors))
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def check_fingerprint(self, path: Path) -> None:
        """Raises :class:`ModelFormatError` if the fingerprint is not that of the matrices.

        That of another version of the numerics cannot be told.
        """
        right = fingerprint_of(self.matrices)
        if self.numerics_version == NUMERICS_VERSION and self.fingerprint != right:
            raise ModelFormatError(
                path,
                f"is {self.fingerprint!r}, and what is listed under matrices has {right!r}: the "
                "file is not as 'farthing quantize' wrote it",
                field="fingerprint",
            )


def _object(key: str, values: Mapping[str, object]) -> str:
    """A member whose own members have a line each."""
    rows = [f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in values.items()]
    inside = ",\n".join(rows)
    return f"  {json.dumps(key)}: {{\n{inside}\n  }}" if rows else f"  {json.dumps(key)}: {{}}"


def read_manifest(path: Path) -> Manifest:
    """The manifest in the file ``path``.

    Raises :class:`ModelFormatError` naming the field that is missing, wrong or of another version.
    """
    fields = read_json_fields(path)
    if fields.text("format") != FORMAT:
        fields.fail("format", f"is not {FORMAT!r}")
    version = fields.integer("layout_version", 0, _LONGEST)
    if version != LAYOUT_VERSION:
        fields.fail(
            "layout_version",
            f"is {version}, and this version of farthing reads {LAYOUT_VERSION}; pack the model "
            "again with 'farthing quantize'",
        )
    method = fields.text("method")
    if method not in _METHODS:
        fields.fail("method", f"is {method[:40]!r}; known: {', '.join(_METHODS)}")
    source_format = fields.text("source_format")
    if source_format not in ("gguf", "huggingface"):
        fields.fail("source_format", f"is {source_format[:40]!r}; known: gguf, huggingface")
    matrices = _with_carried(fields, dict(_matrices(fields)))
    return Manifest(
        matrices=MappingProxyType(matrices),
        method=method,
        source=_short_text(fields, "source"),
        source_format="gguf" if source_format == "gguf" else "huggingface",
        source_bytes=fields.integer("source_bytes", 0, 1 << 62),
        created_by=_short_text(fields, "created_by"),
        numerics_version=fields.integer("numerics_version", 0, _LONGEST),
        fingerprint=_short_text(fields, "fingerprint"),
        checksums=_checksums(fields),
        calibration=_calibration(fields),
    )


def fingerprint_of(matrices: Mapping[str, PackedEntry]) -> str:
    """The numerics fingerprint of weights packed so, in this version."""
    return fingerprint((n, entry.scheme, entry.codebook) for n, entry in matrices.items())


def _checksums(fields: Fields) -> Checksums | None:
    if _TENSOR_SUMS not in fields and _FILE_SUMS not in fields:
        return None
    files = _sums(fields, _FILE_SUMS)
    for name in files:
        if not name.isprintable() or set(name) & set("/\\") or name in ("", ".", ".."):
            fields.fail(_FILE_SUMS, f"{name[:80]!r} is not a file name")
    return Checksums(_sums(fields, _TENSOR_SUMS), files)


def _calibration(fields: Fields) -> Calibration | None:
    if _CALIBRATION not in fields:
        return None
    match fields.values[_CALIBRATION]:
        case {"use": "mixed", "name": str(name), "sha256": str(digest), **rest} if not rest:
            if name.isprintable() and len(name) <= 255 and _SHA256.fullmatch(digest):
                return Calibration("mixed", name, digest)
    return fields.fail(
        _CALIBRATION, 'must have a use of "mixed", a name and a sha256 of 64 hexadecimal digits'
    )


def _sums(fields: Fields, key: str) -> Mapping[str, str]:
    listed = fields.values.get(key)
    if not isinstance(listed, dict):
        fields.fail(key, "must be an object")
    for name, value in listed.items():
        if not isinstance(value, str) or not _SUM.fullmatch(value):
            fields.fail(f"{key}.{name}", "must be eight hexadecimal digits")
    return MappingProxyType(listed)


def _short_text(fields: Fields, key: str) -> str:
    text = fields.text(key)
    if len(text) > 255:
        fields.fail(key, f"has {len(text)} characters, more than 255")
    return text


def _matrices(fields: Fields) -> list[tuple[str, PackedEntry]]:
    listed = fields.values.get("matrices")
    if not isinstance(listed, dict) or not listed:
        fields.fail("matrices", "must be an object, not empty")
    return [(name, _entry(fields, name, value)) for name, value in listed.items()]


def _with_carried(fields: Fields, matrices: dict[str, PackedEntry]) -> dict[str, PackedEntry]:
    """The matrices, those listed as carried with the scheme whose values they are."""
    if _CARRIED not in fields:
        return matrices
    listed = fields.values[_CARRIED]
    if not isinstance(listed, dict):
        fields.fail(_CARRIED, "must be an object")
    for name, value in listed.items():
        title = f"{_CARRIED}.{name}"
        if name not in matrices:
            fields.fail(title, "is not listed under matrices")
        entry = matrices[name]
        if not isinstance(value, str) or value not in SCHEMES:
            fields.fail(title, f"scheme {str(value)[:40]!r} is unknown to this version of farthing")
        asked, carrier = SCHEMES[value], SCHEMES[entry.scheme]
        if asked is carrier or not carries(carrier, asked):
            fields.fail(title, f"{entry.scheme} does not carry {value}")
        if asked.codebook_learnt and carrier.has_codebook and entry.codebook is None:
            fields.fail(title, f"a {value} matrix has a codebook of its own")
        matrices[name] = replace(entry, carries=value)
    return matrices


def _entry(fields: Fields, name: str, value: object) -> PackedEntry:
    title = f"matrices.{name}"

    def fail(problem: str) -> NoReturn:
        fields.fail(title, problem)

    if not isinstance(value, list) or len(value) not in (3, 4):
        fail("must be a list of scheme, rows, columns and perhaps a codebook")
    scheme, *sizes = value[:3]
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        fail(f"scheme {str(scheme)[:40]!r} is unknown to this version of farthing")
    if not SCHEMES[scheme].served:
        fail(f"scheme {scheme!r} is not one that kernels compute with")
    rows, cols = (
        size if type(size) is int and 0 < size < _LONGEST else fail("sizes must be positive")
        for size in sizes
    )
    codebook = None
    if len(value) == 4:
        if SCHEMES[scheme].codebook is None:
            fail(f"scheme {scheme!r} has no codebook")
        levels = value[3]
        if not isinstance(levels, list) or len(levels) != 16:
            fail("a codebook is a list of 16 levels")
        if not all(type(level) is int and -128 <= level < 128 for level in levels):
            fail("the levels of a codebook are integers from -128 to 127")
        codebook = tuple(levels)
    return PackedEntry(scheme, rows, cols, codebook)
