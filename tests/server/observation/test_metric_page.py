"""Values as Prometheus reads them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.exposition import ALLOWUTF8
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from farthing.engine.metrics import Histogram
from farthing.server.observation.metric_page import MetricPage
from farthing.server.observation.metric_table import OWN_METRICS, VLLM_METRICS, Metric

BOUNDS = (0.5, 1.0, 2.0, 1e6)
TABLE = (
    Metric("farthing_things_total", "counter", "Things.", ("kind",)),
    Metric("farthing_seconds", "histogram", "How long.", ("common", "kind")),
    Metric("farthing_level", "gauge", "How much."),
)


def histogram(values: list[float]) -> Histogram:
    made = Histogram(BOUNDS)
    for value in values:
        made.observe(value)
    return made


def samples(page: MetricPage) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """As both parsers read it, which is the same."""
    text = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in read_text(generate_latest(page).decode())
        for sample in family.samples
    }
    other = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in read_openmetrics(openmetrics.generate_latest(page, ALLOWUTF8).decode())
        for sample in family.samples
    }
    assert text == other
    return text


@given(st.lists(st.sampled_from((0.0, 0.5, 0.50001, 1.0, 1.5, 2.0, 3.0, 1e6, 1e7))))
def test_buckets_are_cumulative_and_equal_a_plain_count(values: list[float]) -> None:
    page = MetricPage(TABLE, {"common": "c"})
    page.histogram("farthing_seconds", histogram(values), kind="k")
    labels = {("common", "c"), ("kind", "k")}
    expected: dict[tuple[str, frozenset[tuple[str, str]]], float] = {
        ("farthing_seconds_count", frozenset(labels)): len(values),
        ("farthing_seconds_sum", frozenset(labels)): sum(values),
    }
    for bound, shown in ((0.5, "0.5"), (1.0, "1.0"), (2.0, "2.0"), (1e6, "1000000.0")):
        bucket = frozenset({*labels, ("le", shown)})
        expected["farthing_seconds_bucket", bucket] = sum(v <= bound for v in values)
    bucket = frozenset({*labels, ("le", "+Inf")})
    expected["farthing_seconds_bucket", bucket] = len(values)
    assert samples(page) == expected


def test_bounds_that_nothing_reaches_may_be_left_out() -> None:
    page = MetricPage(TABLE, {"common": "c"})
    page.histogram("farthing_seconds", histogram([0.1, 1.5, 5.0]), most=2.0, kind="k")
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in samples(page).items()
        if name.endswith("_bucket")
    }
    assert buckets == {"0.5": 1, "1.0": 1, "2.0": 2, "+Inf": 3}


@pytest.mark.parametrize("text", ['a"b\nc\\d', "\u2028{}", "", "ü", "\ud800"])
def test_any_label_value_is_read_back(text: str) -> None:
    page = MetricPage(TABLE)
    shown = text.encode("utf-8", "replace").decode()
    page.set("farthing_things_total", 3, kind=shown)
    assert samples(page) == {("farthing_things_total", frozenset({("kind", shown)})): 3}


def test_what_is_not_in_the_table_cannot_be_entered() -> None:
    page = MetricPage(TABLE)
    with pytest.raises(KeyError):
        page.set("farthing_other", 1)
    with pytest.raises(AssertionError):
        page.set("farthing_things_total", 1, other="x")
    with pytest.raises(AssertionError):
        page.set("farthing_seconds", 1)


def test_what_has_no_value_is_not_shown() -> None:
    page = MetricPage(TABLE)
    page.set("farthing_level", 0)
    assert [family.name for family in page.collect()] == ["farthing_level"]


def test_names_are_as_prometheus_wants_them() -> None:
    families = set()
    for metric in (*VLLM_METRICS, *OWN_METRICS):
        assert re.fullmatch(r"(vllm:|farthing_)[a-z][a-z0-9_]*", metric.name)
        if metric.kind == "counter":
            assert metric.name.endswith("_total")
        for suffix in ("_bucket", "_count", "_sum"):
            assert not metric.name.endswith(suffix)
        family = metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
        assert family not in families, "two families of one name"
        families.add(family)
        assert metric.meaning.endswith(".")


def test_the_documentation_lists_all_and_no_more() -> None:
    """docs/metrics.md has a row for each metric: its name, kind, labels and meaning."""
    text = (Path(__file__).parents[3] / "docs/metrics.md").read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| `(vllm:|farthing_)", line)]
    expected = [
        f"| `{m.name}` | {m.kind} | {', '.join(f'`{label}`' for label in m.labels)} | {m.meaning} |"
        for m in (*OWN_METRICS, *VLLM_METRICS)
    ]
    assert rows == expected
