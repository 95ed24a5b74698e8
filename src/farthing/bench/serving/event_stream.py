"""Events of ``text/event-stream``, each with the time when it was there."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")


def events(reads: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Time and data of each event of a body that came in the pieces ``reads``.

    An event is there when the end of its last ``data:`` line is: a blank line that is still to come
    holds nothing back. Comments and other fields are passed over. A line that the body ends in is
    one too.
    """
    body = b"".join([piece for _, piece in reads])
    ends = list(accumulate(len(piece) for _, piece in reads))
    data: list[bytes] = []
    time = 0.0
    for line in _LINE.finditer(body):
        text = line[1]
        if text.startswith(b"data:"):
            data.append(text[6:] if text[5:6] == b" " else text[5:])
            # A CR may be all of a line's end: the LF behind it is not waited for.
            time = reads[bisect_left(ends, line.end(1) + bool(line[2]))][0]
        elif not text and data:
            yield time, b"\n".join(data)
            data = []
    if data:
        yield time, b"\n".join(data)
