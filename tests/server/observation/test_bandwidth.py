"""How fast steps read memory."""

from __future__ import annotations

from dataclasses import replace

from farthing.engine.metrics import EngineMetrics
from farthing.server.observation.bandwidth import ReadRate, ReadTotals, read_totals
from support.engine_info import ENGINE_INFO


def test_each_step_reads_all_weights_and_the_contexts_that_run() -> None:
    info = replace(ENGINE_INFO, weight_bytes=1000, kv_block_bytes=320, block_tokens=16)
    metrics = EngineMetrics(steps=3, step_seconds=0.5, kv_stored=100)
    assert read_totals(info, metrics) == ReadTotals(3000, 2000, 0.5)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_is_that_of_the_last_minutes_steps() -> None:
    """100 bytes a second of steps for a long time, then 300: the first is forgotten in a minute."""
    clock = Clock()
    rate = ReadRate(clock)
    read, seconds, rates = 0, 0.0, {}
    for second in range(1, 301):
        clock.now = float(second)
        read += 50 if second <= 200 else 150
        seconds += 0.5
        rates[second] = rate.note(ReadTotals(read, 0, seconds))
    assert rates[1] == rates[200] == 100
    assert 100 < rates[230] < 300
    assert rates[266] == 300


def test_weights_and_kv_add_up() -> None:
    rate = ReadRate(Clock())
    assert rate.note(ReadTotals(300, 100, 2.0)) == 200


def test_an_idle_minute_has_no_rate() -> None:
    clock = Clock()
    rate = ReadRate(clock)
    totals = ReadTotals(100, 0, 1.0)
    clock.now = 1.0
    assert rate.note(totals) == 100
    for clock.now in (10.0, 50.0, 62.0, 130.0):
        last = rate.note(totals)
    assert last == 0.0


def test_a_scrape_a_millisecond_keeps_no_more_than_a_minute() -> None:
    clock = Clock()
    rate = ReadRate(clock)
    for i in range(200_000):
        clock.now = i / 1000
        rate.note(ReadTotals(i, 0, i / 1000))
    assert len(rate._noted) < 20
