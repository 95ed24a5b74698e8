"""Signals that stop a command, and the one that nohup has ignored."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from farthing.cli.stop_signals import StoppedError, StopSignals, TerminationRaised

ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def fail(number: int, _frame: object) -> None:
    raise AssertionError(f"{signal.Signals(number).name} acts as ever")


@pytest.fixture(autouse=True)
def before() -> Iterator[None]:
    handlers = {number: signal.signal(number, fail) for number in ALL}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_termination_is_raised_where_it_comes_and_once(number: signal.Signals, status: int) -> None:
    with TerminationRaised():
        with pytest.raises(StoppedError) as stopped:
            send(number)
        assert stopped.value.status == status
        with pytest.raises(AssertionError, match="acts as ever"):
            send(number)
    assert {signal.getsignal(each) for each in ALL} == {fail}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_wish_to_stop_is_kept_for_the_next_good_moment(number: signal.Signals) -> None:
    with StopSignals() as signals:
        signals.check()
        send(number)
        with pytest.raises(StoppedError, match=number.name):
            signals.check()
        with pytest.raises(AssertionError, match="acts as ever"):
            send(number)
    assert {signal.getsignal(each) for each in ALL} == {fail}


def test_who_hangs_up_is_not_heard_under_nohup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with TerminationRaised():
        send(signal.SIGHUP)
        with pytest.raises(StoppedError, match="SIGTERM"):
            send(signal.SIGTERM)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
