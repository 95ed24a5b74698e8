"""From a model to a packed directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from farthing import machine
from farthing.errors import InvalidParameterError
from farthing.models.checkpoint import Checkpoint, check_tensors, open_checkpoint
from farthing.models.checkpoint.packed_manifest import (
    LAYOUT_VERSION,
    MANIFEST,
    Calibration,
    Checksums,
    Manifest,
    PackedEntry,
    SourceFormat,
    fingerprint_of,
)
from farthing.models.registry import FAMILIES, build_program
from farthing.packing.checksums import checksum
from farthing.packing.description import description_files
from farthing.packing.folder import PartialFolder, check_target, partial_folder
from farthing.packing.matrices import SEARCHED_BYTES, packed_matrices, searched_bytes
from farthing.packing.plan import Plan, plan
from farthing.packing.shards import INDEX, SHARD_BYTES, Piece, Shard, index_of, plan_shards
from farthing.packing.worker_threads import worker_threads
from farthing.program.native import FloatMode
from farthing.program.numerics import NUMERICS_VERSION
from farthing.program.weights import packed_shape
from farthing.quantization.rounding import ROUNDING_METHODS, RoundingMethod
from farthing.version import installed_version


@dataclass(frozen=True, slots=True)
class PackOptions:
    """How a model is packed. Schemes are names of :data:`farthing.packing.plan.TARGETS`."""

    scheme: str
    method: RoundingMethod = "weighted"
    head_scheme: str | None = None  # of the output matrix; None: as the others
    force: bool = False  # a packed directory in the target's place is replaced
    num_threads: int | None = None  # None: one for each core this process may use
    shard_bytes: int = SHARD_BYTES
    schemes: Mapping[str, str] = field(default_factory=dict)
    """Of single matrices by name; they go before the others."""
    calibration: Calibration | None = None  # the text that schemes were chosen by, to be noted


@dataclass(frozen=True, slots=True)
class PackedModel:
    """What was written."""

    path: Path
    nbytes: int  # of all tensors
    parameters: int
    resumed: int  # tensors that an earlier run had left


@dataclass(frozen=True, slots=True)
class PackProgress:
    """Told of what goes on; every method may be called once or often."""

    plan: Callable[[Plan], None] = lambda _: None
    """Before the first weight is read."""
    folder: Callable[[PartialFolder], None] = lambda _: None
    """When the folder that the model grows in is ready, with what is in it already."""
    bytes: Callable[[int, int], None] = lambda done, total: None
    """Bytes of tensors written, and of all."""


def quantize_model(
    source: Path, target: Path, options: PackOptions, progress: PackProgress | None = None
) -> PackedModel:
    """Packs the model at ``source`` into a new directory ``target``.

    Memory for the two largest matrices and some rows is needed, and 2 GiB at most for the floats of
    matrices whose one scale is searched. An interrupted run leaves a folder beside ``target`` from
    which the next one with the same source and options goes on.

    Raises :class:`InvalidParameterError` for options and targets that cannot be, and subclasses of
    :class:`FarthingError` for models that cannot be opened or packed and a disk without room.
    """
    told = progress or PackProgress()
    if options.method not in ROUNDING_METHODS:
        raise InvalidParameterError(
            f"method={options.method!r} must be one of {', '.join(ROUNDING_METHODS)}"
        )
    threads = options.num_threads
    if threads is not None and threads < 1:
        raise InvalidParameterError(f"num_threads={threads} must be at least 1")
    target = Path(os.path.abspath(target))  # noqa: PTH100 - links stay as they are
    with FloatMode():
        checkpoint = open_checkpoint(source, FAMILIES)
        program = build_program(checkpoint.config)
    check_tensors(checkpoint, program.weights)
    check_target(target, [source, *_files(checkpoint)], force=options.force)
    work = plan(checkpoint, program, options.scheme, options.head_scheme, options.schemes)
    _refuse_large_searches(work, options.method)
    told.plan(work)
    shards = plan_shards(*_pieces(work), options.shard_bytes)
    total = sum(piece.nbytes for shard in shards for piece in shard.pieces)
    settings = _settings(checkpoint, options)
    with partial_folder(target, settings, shards, force=options.force) as folder:
        told.folder(folder)
        resumed, done = folder.done, folder.done_bytes
        told.bytes(done, total)
        for data, codebook in _tensors(work, resumed, options):
            folder.append(data, codebook)
            done += len(data)
            told.bytes(done, total)
        _describe(checkpoint, work, options, shards, folder)
        folder.finish()
    parameters = sum(m.source.rows * m.source.cols for m in work.matrices)
    parameters += sum(vector.cols for _, vector in work.vectors)
    return PackedModel(target, total, parameters, resumed)


def _pieces(work: Plan) -> tuple[list[Piece], list[Piece]]:
    matrices = []
    for m in work.matrices:
        shape = packed_shape(m.carrier.name, *m.shape)
        matrices.append(Piece(m.name, "U8", shape, shape[0] * shape[1]))
    vectors = [Piece(name, "F32", (v.cols,), 4 * v.cols) for name, v in work.vectors]
    return matrices, vectors


def _refuse_large_searches(work: Plan, method: RoundingMethod) -> None:
    for m in work.matrices:
        nbytes = searched_bytes(m, method)
        if nbytes > SEARCHED_BYTES:
            raise InvalidParameterError(
                f"--method {method}: a search for the one scale of {m.name} would hold "
                f"{nbytes / 2**30:.1f} GiB of floats, more than {SEARCHED_BYTES >> 30}; absmax "
                "needs none"
            )


def _tensors(
    work: Plan, skip: int, options: PackOptions
) -> Iterator[tuple[memoryview, tuple[int, ...] | None]]:
    """Bytes and codebook of each tensor from the ``skip``-th on, in the order of the shards."""
    matrices = work.matrices[skip:]
    num_threads = options.num_threads or machine.default_threads()
    with worker_threads(num_threads) as threads:
        for made in packed_matrices(matrices, options.method, threads, 2 * num_threads):
            yield made.matrix.packed_bytes().data, made.codebook
    for _, vector in work.vectors[max(0, skip - len(work.matrices)) :]:
        with FloatMode():
            values = np.ascontiguousarray(vector.dequantize(), np.float32).reshape(-1)
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise vector.not_finite(0, int(bad[0]))
        yield values.view(np.uint8).data, None


def _describe(
    checkpoint: Checkpoint,
    work: Plan,
    options: PackOptions,
    shards: Sequence[Shard],
    folder: PartialFolder,
) -> None:
    """Writes all that is not a weight."""
    files = description_files(checkpoint.path)
    if len(shards) > 1:
        files[INDEX] = index_of(shards).encode()
    for name, data in files.items():
        folder.add(name, data)
    codebooks = folder.codebooks
    matrices = {
        m.name: PackedEntry(
            m.carrier.name,
            *m.shape,
            codebook=codebooks.get(m.name),
            carries=None if m.scheme.served else m.scheme.name,
        )
        for m in work.matrices
    }
    manifest = Manifest(
        matrices=matrices,
        method=options.method if work.rounded else "none",
        source=checkpoint.path.name or checkpoint.path.resolve().name,
        source_format=_format(checkpoint),
        source_bytes=sum(path.stat().st_size for path in _files(checkpoint)),
        created_by=_tool(),
        numerics_version=NUMERICS_VERSION,
        fingerprint=fingerprint_of(matrices),
        checksums=Checksums(
            folder.checksums, {name: checksum(data) for name, data in files.items()}
        ),
        calibration=options.calibration,
    )
    folder.add(MANIFEST, manifest.to_json())


def _tool() -> str:
    return f"farthing {installed_version() or ''}".rstrip()


def _format(checkpoint: Checkpoint) -> SourceFormat:
    assert checkpoint.format != "packed"
    return checkpoint.format


def _files(checkpoint: Checkpoint) -> list[Path]:
    """The files that hold the weights."""
    return list(dict.fromkeys(tensor.file for tensor in checkpoint.tensors.values()))


def _settings(checkpoint: Checkpoint, options: PackOptions) -> dict[str, object]:
    """What must be the same for an interrupted run to be gone on with."""
    files = _files(checkpoint)
    if checkpoint.path.is_dir():
        files.append(checkpoint.path / "config.json")
    return {
        "files": [[str(f), f.stat().st_size, f.stat().st_mtime_ns] for f in files],
        "scheme": options.scheme,
        "head_scheme": options.head_scheme,
        "schemes": dict(options.schemes),
        "method": options.method,
        "shard_bytes": options.shard_bytes,
        "calibration": None if options.calibration is None else asdict(options.calibration),
        "layout_version": LAYOUT_VERSION,
        "tool": _tool(),
    }
