"""Metrics of a namespace, read from the store, in the text format of Prometheus.

    store ──▶ Reading ──▶ families and their samples ──▶ text

No process keeps counters of its own: whoever is asked reads the same numbers.
"""

from holdfast.metrics.collector import Collector
from holdfast.metrics.families import FAMILIES, Family
from holdfast.metrics.text import OPENMETRICS, PROMETHEUS

__all__ = ["FAMILIES", "OPENMETRICS", "PROMETHEUS", "Collector", "Family"]
