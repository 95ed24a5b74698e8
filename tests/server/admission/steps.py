"""Steps as an engine tells them."""

from __future__ import annotations

from collections.abc import Sequence

from farthing.server.seam.messages import Stepped


def stepped(
    started: float,
    ended: float,
    *,
    decode_rows: int = 0,
    prefill_rows: int = 0,
    num_running: int = 1,
    num_waiting: int = 0,
    begun: Sequence[tuple[int, int]] = (),
    progress: Sequence[tuple[int, int, int, int, bool]] = (),
) -> Stepped:
    return Stepped(
        started=started,
        ended=ended,
        decode_rows=decode_rows,
        prefill_rows=prefill_rows,
        num_running=num_running,
        num_waiting=num_waiting,
        begun=tuple(begun),
        progress=tuple(progress),
        chunks=(),
        outputs=(),
        failures=(),
    )
