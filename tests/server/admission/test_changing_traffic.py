"""What comes next is believed to be like what came last, not like what came before that."""

from __future__ import annotations

import pytest

from farthing.openai_protocol.errors import RequestError
from farthing.server.admission.admission import Admission, Ask
from farthing.server.admission.limits import QueueLimits
from farthing.server.principal import ANYBODY


def waits_after(earlier_tokens: int, tokens: int, running: int) -> list[float]:
    """What those beyond a full queue are told, of answers of ``tokens``, after earlier ones."""
    now = [0.0]
    admission = Admission(QueueLimits(8, 32_768), max_num_seqs=running, clock=lambda: now[0])
    for number in range(32):
        ask = Ask(number, 8, 1, earlier_tokens, ignore_eos=True, user=f"user {number}")
        admission.enter(ANYBODY, [ask]).leave()
        now[0] += 1
    waits = []
    for number in range(32, 80):
        ask = Ask(number, 8, 1, tokens, ignore_eos=True, user=f"user {number}")
        try:
            admission.enter(ANYBODY, [ask])
        except RequestError as error:
            waits.append(error.retry_after or 0.0)
    assert len(waits) == 40
    assert min(waits) > 0
    return waits


@pytest.mark.parametrize("running", [1, 2, 4])
@pytest.mark.parametrize("earlier", [10, 1500])
def test_requests_that_have_gone_say_nothing_of_those_that_come(earlier: int, running: int) -> None:
    assert waits_after(earlier, 40, running) == pytest.approx(waits_after(40, 40, running))
