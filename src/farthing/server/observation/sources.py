"""What metrics are made of, gathered at one moment."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from farthing.engine.kv_manager import KvUsage
from farthing.engine.metrics import EngineLoad, EngineMetrics
from farthing.server.admission.admission import Admission
from farthing.server.admission.limits import QueueLimits
from farthing.server.admission.numbers import AdmissionNumbers
from farthing.server.life_cycle import LifeCycle, Phase
from farthing.server.observation.bandwidth import ReadRate, ReadTotals, read_totals
from farthing.server.observation.engine_snapshots import EngineSnapshots, ObservedEngine
from farthing.server.observation.http_counts import HttpCounts
from farthing.server.observation.request_counts import RequestCounts
from farthing.server.observation.step_counts import StepCounts
from farthing.server.seam.messages import EngineInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where numbers come from; each is asked when somebody wants to see them."""

    model: Callable[[], str]  # the name it is served under
    version: str  # of Farthing
    engine: ObservedEngine
    life: LifeCycle
    healthy: Callable[[], bool]
    admission: Callable[[], Admission | None]  # None before there is one
    connections: Callable[[], int]
    dropped_log_records: Callable[[], int]
    http: HttpCounts
    requests: RequestCounts
    steps: StepCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """All numbers of one moment; nothing here changes while it is written out."""

    model: str
    version: str
    info: EngineInfo | None
    metrics: EngineMetrics
    load: EngineLoad
    snapshot_age: float
    stalled: float
    loaded: float
    engine_pid: int | None
    phase: Phase
    healthy: bool
    queue_limits: QueueLimits | None
    queue: AdmissionNumbers
    connections: int
    dropped_log_records: int
    http: HttpCounts
    requests: RequestCounts
    steps: StepCounts
    read: ReadTotals | None
    read_rate: float


class Observer:
    """Gathers moments."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._snapshots = EngineSnapshots(sources.engine)
        self._read_rate = ReadRate()

    async def moment(self) -> Moment:
        """All numbers now; the engine's are older if it does not answer within a second."""
        sources = self._sources
        await self._snapshots.refresh()
        latest, info = self._snapshots.latest, sources.engine.info
        metrics = EngineMetrics() if latest is None else latest.metrics
        read = None if info is None else read_totals(info, metrics)
        done, total = sources.engine.loading
        admission = sources.admission()
        return Moment(
            model=sources.model().encode("utf-8", "replace").decode(),
            version=sources.version,
            info=info,
            metrics=metrics,
            load=EngineLoad(0, 0, 0, KvUsage()) if latest is None else latest.load,
            snapshot_age=self._snapshots.age,
            stalled=sources.engine.stalled_for(),
            loaded=1.0 if info is not None else done / total if total else 0.0,
            engine_pid=sources.engine.pid,
            phase=sources.life.phase,
            healthy=sources.healthy(),
            queue_limits=None if admission is None else admission.limits,
            queue=AdmissionNumbers() if admission is None else deepcopy(admission.numbers),
            connections=sources.connections(),
            dropped_log_records=sources.dropped_log_records(),
            http=sources.http.copied(),
            requests=sources.requests.copied(),
            steps=sources.steps.copied(),
            read=read,
            read_rate=0.0 if read is None else self._read_rate.note(read),
        )
