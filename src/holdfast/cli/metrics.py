"""`holdfast metrics`: the metrics of a namespace, as Prometheus reads them."""

from __future__ import annotations

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.output import write


@command(
    "metrics", "holdfast metrics", "holdfast metrics | grep ^holdfast_needed",
    "holdfast metrics > /var/lib/node_exporter/holdfast.prom", shared=("url", "namespace"),
)  # fmt: skip
@click.option("--openmetrics", "is_open", is_flag=True, help="Print OpenMetrics 1.0 instead of Prometheus' 0.0.4.")
@pass_client
def metrics(client: Client, *, is_open: bool) -> None:
    """Print the metrics that `holdfast web` serves under /metrics, as text.

    Jobs, oldest wait and needed concurrency of each queue, attempts, waits and runs of each task, workers and the
    server. Counters begin at midnight UTC. See docs/metrics.md. Exit code 4 if there is no server, or it is
    unreachable.
    """
    from holdfast.metrics import OPENMETRICS, PROMETHEUS, Collector

    write(Collector(client.app).text(OPENMETRICS if is_open else PROMETHEUS), end="")
