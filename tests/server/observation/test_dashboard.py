"""The dashboard shows what there is, and Grafana can read it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from farthing.server.observation.metric_table import OWN_METRICS, VLLM_METRICS

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "docs/grafana/farthing.json").read_text()
)
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
METRICS = {metric.name: metric for metric in (*VLLM_METRICS, *OWN_METRICS)}
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]
QUERIES = [
    variable["definition"]
    for variable in DASHBOARD["templating"]["list"]
    if variable["type"] == "query"
]


def metric_of(name: str) -> str:
    """The metric that a sample's name belongs to."""
    if name in METRICS and METRICS[name].kind != "histogram":
        return name
    base = re.sub(r"_(bucket|count|sum)$", "", name)
    assert base != name, f"{name} is a histogram, or nothing"
    assert METRICS[base].kind == "histogram", name
    return base


@pytest.mark.parametrize("expression", [*EXPRESSIONS, *QUERIES])
def test_expressions_name_metrics_and_labels_that_exist(expression: str) -> None:
    names = re.findall(r"(?:vllm:|farthing_)\w+", expression)
    assert names
    for name in names:
        metric_of(name)
    for name, selected in re.findall(r"((?:vllm:|farthing_)\w+)\{([^}]*)\}", expression):
        labels = set(re.findall(r"(\w+)\s*=~?", selected))
        assert labels <= {"instance", "le", *METRICS[metric_of(name)].labels}
    grouped = {
        label.strip()
        for group in re.findall(r"by \(([^)]*)\)", expression)
        for label in group.split(",")
    }
    assert grouped <= {"le"} | {x for name in names for x in METRICS[metric_of(name)].labels}
    if expression not in QUERIES:
        assert expression.count("(") == expression.count(")")
        assert expression.count('instance=~"$instance"') == len(names)


def test_counters_are_shown_as_rates_and_gauges_as_they_are() -> None:
    for expression in EXPRESSIONS:
        for before, name in re.findall(r"(\w*\(?)((?:vllm:|farthing_)\w+)\{", expression):
            is_count = METRICS[metric_of(name)].kind in ("counter", "histogram")
            assert (before == "rate(") == is_count, expression


def test_grafana_can_read_it() -> None:
    assert DASHBOARD["schemaVersion"] >= 39
    assert DASHBOARD["uid"]
    assert DASHBOARD["title"]
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids)
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["instance"]["datasource"] == source
    for panel in PANELS:
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references) >= 1


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_what_makes_this_server_special_is_on_it() -> None:
    shown = {metric_of(n) for e in EXPRESSIONS for n in re.findall(r"(?:vllm:|farthing_)\w+", e)}
    assert {
        "farthing_weight_bytes_read_total",
        "farthing_read_bandwidth_limit_bytes_per_second",
        "farthing_predicted_step_seconds_total",
        "farthing_promised_wait_seconds",
        "vllm:time_to_first_token_seconds",
        "vllm:inter_token_latency_seconds",
    } <= shown
