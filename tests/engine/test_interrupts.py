"""Ctrl-C waits until the engine's books are right again."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from farthing.engine.interrupts import InterruptsHeld


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def held(*actions: Callable[[], object]) -> None:
    with InterruptsHeld():
        for action in actions:
            action()


def test_it_acts_when_the_block_is_left() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        held(interrupt, lambda: done.append("the rest of the block"))
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_acts_at_the_end_of_the_outermost_block() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        held(lambda: held(interrupt), lambda: done.append("the rest of the outer block"))
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_is_raised_where_nothing_came() -> None:
    with InterruptsHeld():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_of_the_block_is_the_context_of_the_interrupt() -> None:
    def fail() -> None:
        raise ValueError("of the block")

    with pytest.raises(KeyboardInterrupt) as raised:
        held(interrupt, fail)
    assert isinstance(raised.value.__context__, ValueError)


def test_each_of_two_finds_the_handler_that_stands_then() -> None:
    came: list[int] = []

    def once(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, once)
    with pytest.raises(KeyboardInterrupt):
        held(interrupt, interrupt)
    assert came == [signal.SIGINT]


@pytest.mark.parametrize("handler_of_the_system", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_is_no_function_stays(handler_of_the_system: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, handler_of_the_system)
    with InterruptsHeld():
        assert signal.getsignal(signal.SIGINT) is handler_of_the_system


def test_other_threads_leave_the_handler_alone() -> None:
    seen: list[object] = []

    def look() -> None:
        with InterruptsHeld():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
