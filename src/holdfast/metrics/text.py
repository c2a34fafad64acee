"""The text formats: Prometheus 0.0.4, and OpenMetrics 1.0 for scrapers that ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from holdfast.metrics.families import FAMILIES, Family, Sample, cumulative
from holdfast.metrics.reading import Reading
from holdfast.store.commands import TimesReply

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def render(reading: Reading, *, media_type: str = PROMETHEUS, sees: Callable[[str], bool] | None = None) -> str:
    """Return a reading as text, always in the same order.

    `sees` tells whether somebody may see a queue; they get no metrics of the namespace as a whole.
    """
    return write(((family, family.read(reading)) for family in FAMILIES), media_type, sees)


def write(
    families: Iterable[tuple[Family, Iterable[Sample]]], media_type: str, sees: Callable[[str], bool] | None = None
) -> str:
    is_open = media_type.startswith("application/openmetrics-text")
    lines: list[str] = []
    for family, samples in families:
        shown = [each for each in samples if sees is None or (each.queue is not None and sees(each.queue))]
        if shown:
            lines += _head(family, is_open)
            for sample in sorted(shown, key=lambda each: each.labels):
                lines += _lines(family, sample)
    return "\n".join([*lines, "# EOF", ""] if is_open else [*lines, ""])


def _head(family: Family, is_open: bool) -> Iterator[str]:
    name, kind, help = family.name, family.kind, _escape(family.help, quotes=False)
    if is_open:
        name, help = name.removesuffix("_total").removesuffix("_info"), _escape(family.help)
    elif kind == "info":
        kind = "gauge"
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"


def _lines(family: Family, sample: Sample) -> Iterator[str]:
    labels = [f'{name}="{_escape(value)}"' for name, value in zip(family.labels, sample.labels, strict=True)]
    if not isinstance(sample.value, TimesReply):
        yield f"{_named(family.name, labels)} {_number(sample.value)}"
        return
    for bound, count in cumulative(sample.value):
        le = 'le="+Inf"' if bound == float("inf") else f'le="{bound}"'
        yield f"{_named(f'{family.name}_bucket', [*labels, le])} {count}"
    yield f"{_named(f'{family.name}_sum', labels)} {_number(sample.value.total / 1000)}"
    yield f"{_named(f'{family.name}_count', labels)} {sample.value.number}"


def _named(name: str, labels: list[str]) -> str:
    return f"{name}{{{','.join(labels)}}}" if labels else name


def _number(value: float) -> str:
    return repr(int(value)) if value == int(value) else repr(float(value))


def _escape(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
