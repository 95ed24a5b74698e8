"""Options of ``farthing bench serve``: what is told of a load, and where it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PercentileMetrics = Annotated[
    str,
    typer.Option(
        "--percentile-metrics",
        metavar="NAME,...",
        help="Of ttft, tpot, itl, e2el, client_queue_time, e2el_including_client_queue.",
    ),
]
MetricPercentiles = Annotated[
    str, typer.Option("--metric-percentiles", metavar="X,...", help="Such as 50,90,99.")
]
Goodput = Annotated[
    list[str] | None,
    typer.Option(
        "--goodput",
        metavar="NAME:MS",
        help="ttft, tpot or e2el and its most milliseconds: counts requests that keep all.",
        show_default=False,
    ),
]
SaveResult = Annotated[bool, typer.Option("--save-result", help="Write the result to a file.")]
SaveDetailed = Annotated[
    bool, typer.Option("--save-detailed", help="With the figures and texts of every request.")
]
AppendResult = Annotated[
    bool, typer.Option("--append-result", help="Add the result to the file, a line.")
]
ResultDir = Annotated[
    Path | None,
    typer.Option(
        "--result-dir", metavar="DIR", help="Where the file goes; here.", show_default=False
    ),
]
ResultFilename = Annotated[
    str | None,
    typer.Option(
        "--result-filename",
        metavar="NAME",
        help="Its name; by default made of the load and the time.",
        show_default=False,
    ),
]
Label = Annotated[
    str | None,
    typer.Option("--label", help="Begins the file's name, stands in it.", show_default=False),
]
Metadata = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata", metavar="KEY=VALUE", help="Stands in the result.", show_default=False
    ),
]
PlotTimeline = Annotated[
    bool, typer.Option("--plot-timeline", help="Draw all requests, beside the result's file.")
]
TimelineItl = Annotated[
    str,
    typer.Option("--timeline-itl-thresholds", metavar="MS,MS", help="Green, orange, red."),
]
