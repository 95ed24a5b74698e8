"""What speculation did during a run, from the server's counters."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from farthing.bench.serving.http_client import HttpClient

_SAMPLE = re.compile(
    r"^vllm:spec_decode_(num_(?:drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos))"
    r"_total(?:\{(.*)\})? ([^ \n]+)",
    re.MULTILINE,
)
_POSITION = re.compile(r'position="(\d+)"')


@dataclass(frozen=True, slots=True)
class SpeculationCounters:
    """``vllm:spec_decode_*`` of ``/metrics``, added up over engines."""

    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0
    accepted_by_position: dict[int, float] = field(default_factory=dict)

    @classmethod
    def from_text(cls, text: str) -> SpeculationCounters | None:
        """Of a Prometheus exposition; None if it has none of them."""
        totals: defaultdict[str, float] = defaultdict(float)
        positions: defaultdict[int, float] = defaultdict(float)
        for name, labels, value in _SAMPLE.findall(text):
            try:
                number = float(value)
            except ValueError:
                continue
            position = _POSITION.search(labels)
            if position is not None:
                positions[int(position[1])] += number
            else:
                totals[name] += number
        if not totals and not positions:
            return None
        return cls(
            totals["num_drafts"],
            totals["num_draft_tokens"],
            totals["num_accepted_tokens"],
            dict(positions),
        )


async def speculation_counters(client: HttpClient, timeout: float) -> SpeculationCounters | None:
    """The counters now; None if the server has none, or no ``/metrics``."""
    exchange = await client.send(client.request("GET", "/metrics"), timeout)
    if exchange.problem is not None:
        return None
    return SpeculationCounters.from_text(exchange.body.decode(errors="replace"))


def speculation_facts(
    before: SpeculationCounters | None, after: SpeculationCounters | None
) -> dict[str, Any]:
    """The run's share, under the keys of vLLM's results; empty if nothing was drafted."""
    if before is None or after is None or after.draft_tokens <= before.draft_tokens:
        return {}
    drafts = after.drafts - before.drafts
    drafted = after.draft_tokens - before.draft_tokens
    accepted = after.accepted_tokens - before.accepted_tokens
    by_position = [
        (after.accepted_by_position[p] - before.accepted_by_position.get(p, 0.0)) / drafts
        for p in sorted(after.accepted_by_position)
        if drafts > 0
    ]
    return {
        "spec_decode_acceptance_rate": accepted / drafted * 100,
        "spec_decode_acceptance_length": 1 + accepted / drafts if drafts > 0 else 0.0,
        "spec_decode_num_drafts": int(drafts),
        "spec_decode_draft_tokens": int(drafted),
        "spec_decode_accepted_tokens": int(accepted),
        "spec_decode_per_position_acceptance_rates": by_position,
    }
