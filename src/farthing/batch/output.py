"""The output of a batch: only whole lines, and what an earlier run left is kept."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

from farthing.batch.envelope import DUPLICATE
from farthing.errors import FarthingError, InvalidParameterError
from farthing.files.disk import why_full

# A line ends with a newline for every reader, also one that takes these for one.
_LINE_BREAKS = str.maketrans({"\u0085": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


class BatchOutput:
    """A file that grows by whole lines. Made by :func:`open_output`.

    ``answered`` and ``failed`` count the lines found in it.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.answered = 0
        self.failed = 0
        self._file = file
        self._end = 0  # bytes of whole lines
        # By digest: lines of the output; whether this run has met them in its input.
        self._met: dict[bytes, bool] = {}

    def meet(self, custom_id: str) -> Literal["new", "earlier", "again"]:
        """Takes in that a line of the input has ``custom_id``, and says what is known of it.

        It is new, an earlier run has written its line, or this run has met it before.
        """
        key = _digest("request", custom_id)
        known = self._met.get(key)
        self._met[key] = True
        if known is None:
            return "new"
        return "again" if known else "earlier"

    def has_line(self, name: str) -> bool:
        """Whether an earlier run has written the error of an input line that has only its name.

        It has no ``custom_id``, or that of another line.
        """
        return _digest("line", name) in self._met

    def write(self, record: Mapping[str, Any]) -> None:
        """Adds a line and hands it to the system.

        Raises :class:`FarthingError` if the disk is full; the file then ends with its last whole
        line.
        """
        line = json.dumps(record, ensure_ascii=False).translate(_LINE_BREAKS).encode() + b"\n"
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file.fileno(), rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), self._end)
            reason = why_full(error) or error.strerror or str(error)
            raise FarthingError(
                f"{self.path}: {reason}; all lines in it are whole, and the same command goes on "
                "from there"
            ) from error
        self._end += len(line)

    def _load(self) -> None:
        """Takes in the lines of an earlier run and drops one that it did not finish."""
        for line, values in _whole_lines(self.path):
            self._end += len(line)
            self._note(values)
        if os.fstat(self._file.fileno()).st_size > self._end:
            os.ftruncate(self._file.fileno(), self._end)

    def _note(self, values: Mapping[str, Any]) -> None:
        failed = is_error(values)
        self.failed += failed
        self.answered += not failed
        if isinstance(values["custom_id"], str) and _code(values) != DUPLICATE:
            self._met[_digest("request", values["custom_id"])] = False
        else:
            self._met[_digest("line", str(values.get("id")))] = False


@contextlib.contextmanager
def open_output(path: Path, *, retry_errors: bool = False) -> Iterator[BatchOutput]:
    """Opens an output, made if it is not there, for this process alone.

    ``retry_errors`` first takes the lines out that tell of an error. Raises
    :class:`InvalidParameterError` for a file that is no batch's output, and
    :class:`FarthingError` while another process writes it.
    """
    path = Path(os.path.realpath(path))
    existed = path.exists()
    file = _locked(path)
    try:
        output = BatchOutput(path, file)
        output._load()
        if retry_errors and output.failed:
            file.close()
            file = _without_errors(path)
            output = BatchOutput(path, file)
            output._load()
        try:
            yield output
        finally:
            if output._end == 0 and not existed:
                path.unlink(missing_ok=True)
            else:
                os.fsync(file.fileno())
    finally:
        file.close()


def is_error(values: Mapping[str, Any]) -> bool:
    """Whether an output line tells of an error."""
    response = values.get("response")
    status = response.get("status_code") if isinstance(response, dict) else None
    return status != 200 or values.get("error") is not None


def _code(values: Mapping[str, Any]) -> object:
    """The error code in the body of an output line."""
    found: Any = values
    for key in ("response", "body", "error", "code"):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _digest(kind: str, name: str) -> bytes:
    raw = f"{kind}:{name}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=16).digest()


def _locked(path: Path) -> BinaryIO:
    while True:
        if path.exists() and not path.is_file():
            raise InvalidParameterError(f"{path}: the output must be a file")
        file = path.open("a+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise FarthingError(f"{path}: another process is writing it") from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # it was replaced meanwhile


def _whole_lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The lines of an output, each with its values; not the last if it has no end."""
    with path.open("rb") as reader:
        number = 0
        while raw := reader.readline():
            number += 1
            values = _values(raw)
            if values is None:
                torn = not raw.endswith(b"\n") and raw.startswith(b'{"id": "batch_req_'[: len(raw)])
                if torn:
                    return
                raise InvalidParameterError(
                    f"{path}: line {number} is no line of a batch's output; give another file"
                )
            if not raw.endswith(b"\n"):
                return
            yield raw, values


def _values(raw: bytes) -> dict[str, Any] | None:
    try:
        values = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    is_output = isinstance(values, dict) and {"custom_id", "response"} <= values.keys()
    return values if is_output else None


def _without_errors(path: Path) -> BinaryIO:
    """Puts a file without the lines of errors in the place of ``path``, locked."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    file = Path(name).open("a+b", buffering=0)  # noqa: SIM115 - it is handed on
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with Path(name).open("wb") as after:
            after.writelines(raw for raw, values in _whole_lines(path) if not is_error(values))
        Path(name).chmod(stat.S_IMODE(path.stat().st_mode))
        os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        file.close()
        Path(name).unlink(missing_ok=True)
        raise
    return file
