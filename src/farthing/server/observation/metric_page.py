"""Values of the metrics of a table, for the encoders of prometheus_client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from farthing.engine.metrics import Histogram
from farthing.server.observation.metric_table import Metric


class MetricPage(Collector):
    """What is entered, in the order of the table; ``common`` are labels of all that have them."""

    def __init__(self, table: Iterable[Metric], common: Mapping[str, str] | None = None) -> None:
        self._common = common or {}
        self._metrics: dict[str, Metric] = {}
        self._families: dict[str, Family] = {}
        for metric in table:
            name = metric.name
            if metric.kind == "counter":
                name = name.removesuffix("_total")
            self._metrics[metric.name] = metric
            self._families[metric.name] = Family(name, metric.meaning, metric.kind)

    def set(self, name: str, value: float, **labels: str) -> None:
        """The value of a gauge or counter."""
        assert self._metrics[name].kind != "histogram", name
        self._families[name].add_sample(name, self._labels(name, labels), value)

    def histogram(
        self, name: str, values: Histogram, *, most: float | None = None, **labels: str
    ) -> None:
        """All buckets of a histogram, those of bounds above ``most`` joined with the last."""
        assert self._metrics[name].kind == "histogram", name
        family, all_labels = self._families[name], self._labels(name, labels)
        below = 0
        for bound, count in zip(values.bounds, values.counts, strict=False):
            if most is not None and bound > most:
                break
            below += count
            bucket = {**all_labels, "le": repr(float(bound))}
            family.add_sample(f"{name}_bucket", bucket, below)
        family.add_sample(f"{name}_bucket", {**all_labels, "le": "+Inf"}, values.count)
        family.add_sample(f"{name}_count", all_labels, values.count)
        family.add_sample(f"{name}_sum", all_labels, values.total)

    def collect(self) -> Iterator[Family]:
        """All metrics of the table that have a value."""
        return (family for family in self._families.values() if family.samples)

    def _labels(self, name: str, given: Mapping[str, str]) -> dict[str, str]:
        wanted = self._metrics[name].labels
        labels = {**{k: v for k, v in self._common.items() if k in wanted}, **given}
        assert set(labels) == set(wanted), f"{name}: {sorted(labels)}, not {sorted(wanted)}"
        return labels
