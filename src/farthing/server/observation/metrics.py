"""The page that Prometheus reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

from prometheus_client import Metric as Family
from prometheus_client import ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from farthing.server.observation.own_metrics import own_page
from farthing.server.observation.sources import Moment, Observer, Sources
from farthing.server.observation.vllm_metrics import vllm_page

MetricsCompat = Literal["vllm", "none"]
"""Under whose names the engine's metrics are shown beside our own."""


Encoder = Callable[[Collector], bytes]


class MetricsPage:
    """Renders what is known, in the formats that a scraper may ask for."""

    def __init__(self, sources: Sources, compat: MetricsCompat = "vllm") -> None:
        self._observer = Observer(sources)
        self._compat = compat
        self._process = ProcessCollector(registry=None)
        self._rendering: dict[str, asyncio.Task[bytes]] = {}  # by content type

    async def render(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type, given the ``Accept`` header.

        Those who ask at the same time get the same page. Streams go on meanwhile: the engine is
        asked between two steps, and the text is made in another thread.
        """
        encode, content_type = _wanted(accept)
        task = self._rendering.get(content_type)
        if task is None:
            task = asyncio.create_task(self._render(encode))
            self._rendering[content_type] = task
            task.add_done_callback(lambda _: self._rendering.pop(content_type))
        return await asyncio.shield(task), content_type

    async def _render(self, encode: Encoder) -> bytes:
        moment = await self._observer.moment()
        return await asyncio.to_thread(encode, _Families(moment, self._compat, self._process))


class _Families(Collector):
    """All families of a moment."""

    def __init__(self, moment: Moment, compat: MetricsCompat, process: ProcessCollector) -> None:
        self._moment = moment
        self._compat = compat
        self._process = process

    def collect(self) -> Iterator[Family]:
        """Ours, vLLM's, and Prometheus's own of the process."""
        moment = self._moment
        yield from own_page(moment).collect()
        if self._compat == "vllm":
            refusals = moment.queue.refusals
            yield from vllm_page(
                moment.model, moment.info, moment.metrics, moment.load, refusals
            ).collect()
        yield from self._process.collect()


def _wanted(accept: str) -> tuple[Encoder, str]:
    """OpenMetrics for those who name it, else the text format that everyone reads."""
    kinds = {kind.partition(";")[0].strip().lower() for kind in accept.split(",")}
    if "application/openmetrics-text" in kinds:
        # The encoder's default puts underscores for the colons of vLLM's names, in samples alone.
        encode = partial(openmetrics.generate_latest, escaping=openmetrics.ALLOWUTF8)
        return encode, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest, CONTENT_TYPE_PLAIN_0_0_4
