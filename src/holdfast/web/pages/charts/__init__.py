"""Plots, drawn as SVG: geometry in attributes and colour in classes, so they need neither scripts nor inline styles.

glance      without axes: the bar of a queue, a sparkline
plot        over time: bars, lines and areas, each panel with an axis of its own, above the same times
histogram   how often: bars of buckets, each twice as wide as the one before or so
timeline    the life of one job: its waits and attempts, idle time collapsed

A plot is text for a template, with the table of its numbers behind it in `<details>`.
"""

from holdfast.web.pages.charts.glance import BAR_STATES, bar_total, sparkline, state_bar
from holdfast.web.pages.charts.histogram import Bucket, histogram
from holdfast.web.pages.charts.plot import Mark, Panel, Series, Times, plot
from holdfast.web.pages.charts.timeline import Moment, Span, Track, timeline

__all__ = [
    "BAR_STATES",
    "Bucket",
    "Mark",
    "Moment",
    "Panel",
    "Series",
    "Span",
    "Times",
    "Track",
    "bar_total",
    "histogram",
    "plot",
    "sparkline",
    "state_bar",
    "timeline",
]
