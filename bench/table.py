"""Render results as Markdown tables, aligned so that they can be read as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from bench.figures import Figure
from bench.goals import GOALS, GROUPS, MAX_GROWTH, Goal, best, growth, ratio
from bench.measures import BY_NAME as MEASURES
from bench.measures import DEPTHS, IDLE, VERBS, Measure
from bench.results import Cell, Results
from bench.roster import BY_NAME as PEERS
from bench.roster import OURS, Peer

MAX_COMMANDS = 12  # in the list of where the server's time goes
OUTSIDE = {"fcall", "evalsha", "eval", "blpop", "bzpopmin", "hello", "function|load", "function|list", "script|load"}


def report(results: Results) -> str:
    """All that was found."""
    parts = [
        _about(results),
        _goals(results),
        _summary(results),
        *(_matrix(results, MEASURES[name]) for name in results.measures() if not MEASURES[name].is_ours),
        _series(results),
        _where(results),
        _peers(results),
        _errors(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def summary(results: Results) -> str:
    """The goals, the best of the other queues, and figures of Holdfast alone."""
    parts = [_about(results), _goals(results), _summary(results), _series(results), _errors(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(results: Results) -> str:
    about = results.about
    noisy = sum(row.is_noisy for row in results.rows)
    loads = [row.load for row in results.rows if row.noise]
    mean = sum(loads) / len(loads) if loads else 0.0
    lines = [
        f"{about['when']}, {about['machine']}, {about['server']} over {about['transport']}, Python {about['python']}, "
        f"Holdfast {about['commit']}",
        f"Medians of up to {about['rounds']} rounds, interleaved. Other load and stolen time: {mean:.1%} of the "
        f"machine on average; {noisy} of {len(results.rows)} rounds had more than 10 % and are left out if a calm one "
        f"is there. `~`: no calm one is there.",
    ]
    if about.get("is_quick"):
        lines.append("A quick run: one short round of each. Orders of magnitude, not figures.")
    return "\n\n".join(lines)


def number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def words_of(figure: Figure) -> str:
    return figure.unit if figure.title == figure.unit else f"{figure.title}, {figure.unit}"


def _shown(cell: Cell | None, figure: Figure) -> str:
    if cell is None:
        return ""
    if cell.is_capped:
        return f"> {number(cell.median, 0)}"
    return ("~" if cell.is_noisy else "") + number(cell.median, figure.digits)


def times(ours: Cell, theirs: Cell, figure: Figure) -> str:
    better = ratio(ours, theirs, figure)
    return f"{'> ' if theirs.is_capped else ''}{better:.{2 if better < 2 else 1 if better < 20 else 0}f} x"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, is_text: bool = False) -> str:
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        others = [cell.ljust(width) if is_text else cell.rjust(width) for cell, width in rest]
        return "| " + " | ".join([first[0].ljust(first[1]), *others]) + " |"

    end = "-" if is_text else ":"
    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + end for width in widths[1:])]) + "|"
    return "\n".join([line(heads), rule, *map(line, rows)])


def _goals(results: Results) -> str:
    """The goals, as far as they were measured."""
    rows = [row for goal in GOALS if (row := _goal(goal, results))]
    for verb, grown in growth(results).items():
        wanted = f"at most {MAX_GROWTH:g} x the server time"
        rows.append([f"{verb}, most jobs waiting", wanted, f"{grown:.2f} x", _yes(grown <= MAX_GROWTH), ""])
    heads = ["", "to reach", "found", "reached", "derived from"]
    return "## Goals\n\n" + _table(heads, rows, is_text=True) if rows else ""


def _goal(goal: Goal, results: Results) -> list[str] | None:
    found, (measure, figure) = goal.found(results), goal.row
    if found is None:
        return None
    name = f"{measure.title}: {words_of(figure)}"
    if found.peer is None or found.theirs is None:
        wanted, seen = f"at most {goal.wanted:g} {figure.unit}", _shown(found.ours, figure)
    else:
        wanted = f"{goal.wanted:.3g} x the {goal.group}"
        both = f"{_shown(found.ours, figure)} to {_shown(found.theirs, figure)}"
        seen = f"{times(found.ours, found.theirs, figure)}: {both} of {found.peer.name}"
    return [name, wanted, seen, _yes(goal.is_reached(found.value)), goal.because]


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "**no**"


def _summary(results: Results) -> str:
    """The first figures of each measure: ours, the best of others, and how many times better ours is."""
    rows = []
    for name in results.measures():
        measure = MEASURES[name]
        for figure in measure.figures if not measure.is_ours else ():
            ours = results.cell(name, OURS.name, figure.key)
            if ours is None:
                continue
            row = [f"{measure.title}: {words_of(figure)}", _shown(ours, figure)]
            for among in GROUPS.values():
                found = best(results, measure, figure, among)
                row.append(_against(ours, found, figure) if found else "")
            rows.append(row)
    return "## Holdfast beside the best of the others\n\n" + _table(["", "Holdfast", *GROUPS], rows) if rows else ""


def _against(ours: Cell, found: tuple[Peer, Cell], figure: Figure) -> str:
    peer, cell = found
    who = "" if peer.runtime == "node" or peer.keeps == "limit" else f"{peer.name} "
    return f"{who}{_shown(cell, figure)} ({times(ours, cell, figure)})"


def _matrix(results: Results, measure: Measure) -> str:
    """All peers, with the spread of the first figure."""
    rows = []
    first = measure.figures[0]
    ours = results.cell(measure.name, OURS.name, first.key)
    for peer in PEERS.values():
        cell = results.cell(measure.name, peer.name, first.key)
        if cell is None:
            continue
        better = "" if ours is None or peer is OURS else times(ours, cell, first)
        spread = f"{number(cell.least, first.digits)} to {number(cell.most, first.digits)}, " if cell.rounds > 1 else ""
        spread += f"{cell.rounds} of {min(results.about['rounds'], measure.most_rounds)}"
        others = [_shown(results.cell(measure.name, peer.name, figure.key), figure) for figure in measure.figures[1:]]
        rows.append([peer.name, _shown(cell, first), spread, better, *others])
    heads = ["", first.title, "spread, rounds", "Holdfast is", *map(words_of, measure.figures[1:])]
    words = "more is better" if first.is_higher_better else "less is better"
    return f"### {measure.title} ({first.unit}, {words}): `{measure.name}`\n\n" + _table(heads, rows)


def _series(results: Results) -> str:
    parts = [_runners(results), _backlog(results), _idle(results)]
    return "\n\n".join(part for part in parts if part)


def _runners(results: Results) -> str:
    measure = MEASURES["runners"]
    cells = [(figure, results.cell("runners", OURS.name, figure.key)) for figure in measure.figures]
    rows = [[figure.title, _shown(cell, figure)] for figure, cell in cells if cell]
    asynchronous = results.cell("drain", OURS.name, "rate")
    if rows and asynchronous:
        rows.insert(0, ["async", _shown(asynchronous, measure.figures[0])])
    return "### Holdfast: each runner, jobs/s: `runners`\n\n" + _table(["", "jobs/s"], rows) if rows else ""


def _backlog(results: Results) -> str:
    rows = []
    for verb in VERBS:
        cells = [results.cell("backlog", OURS.name, f"{verb}, {int(depth):,} waiting") for depth in DEPTHS]
        found = [cell for cell in cells if cell]
        if found:
            grown = growth(results).get(verb, 1.0)
            name = verb if " one" in verb else f"{verb}, 100 a call"
            rows.append([name, *(number(cell.median, 1) if cell else "" for cell in cells), f"{grown:.2f} x"])
    heads = ["", *(f"{int(depth):,}" for depth in DEPTHS), "last / first"]
    title = "### Holdfast: server µs per job by number of waiting jobs: `backlog`\n\n"
    return title + _table(heads, rows) if rows else ""


def _idle(results: Results) -> str:
    rows = []
    for count in IDLE:
        idle = results.cell("idle", OURS.name, f"idle, {int(count):,}")
        job = results.cell("idle", OURS.name, f"a job, {int(count):,} idle")
        if idle and job:
            rows.append([f"{int(count):,}", number(idle.median, 2), number(job.median, 0)])
    heads = ["idle executors", "ms of server time/s", "µs of server time per job that comes"]
    return "### Holdfast: idle executors: `idle`\n\n" + _table(heads, rows) if rows else ""


def _where(results: Results) -> str:
    """Where the server's time goes, by command; what scripts take besides the commands that they call is Lua's."""
    parts = []
    for name in ("enqueue", "bulk", "drain"):
        commands: dict[str, list[float]] = results.details(name, OURS.name).get("by_command", {})
        if not commands:
            continue
        whole = results.cell(name, OURS.name, "server")
        scripts = sum(commands.get(each, [0, 0])[1] for each in ("fcall", "evalsha", "eval"))
        inside = {each: row for each, row in commands.items() if each not in OUTSIDE and "|" not in each}
        lua = scripts - sum(row[1] for row in inside.values())
        rest = (whole.median if whole else scripts) - scripts
        rows = [["the server, besides scripts", "", number(max(0.0, rest), 2)], ["Lua itself", "", number(lua, 2)]]
        rows += [[each.upper(), number(row[0], 2), number(row[1], 2)] for each, row in list(inside.items())]
        rows = sorted(rows, key=lambda row: -float(row[2].replace(",", "")))[:MAX_COMMANDS]
        parts.append(f"Holdfast, `{name}`:\n\n" + _table(["", "calls per job", "µs per job"], rows))
    return "### Where the server's time goes\n\n" + "\n\n".join(parts) if parts else ""


def _peers(results: Results) -> str:
    rows = []
    for name, versions in results.about["versions"].items():
        peer = PEERS.get(name)
        if peer is None or all(row.peer != name for row in results.rows):
            continue
        listed = ", ".join(f"{package} {version}" for package, version in versions.items())
        rows.append([name, peer.settings, _fate(results, peer), listed])
    heads = ["", "settings", "jobs of a killed worker", "versions"]
    return "### Who took part\n\n" + _table(heads, rows, is_text=True) if rows else ""


def _fate(results: Results, peer: Peer) -> str:
    cell = results.cell("recovery", peer.name, "seconds")
    if cell is None:
        return peer.fate
    seen = f"not within {cell.median:.0f} s" if cell.is_capped else f"after {cell.median:.1f} s"
    return f"{peer.fate} (seen: {seen})"


def _errors(results: Results) -> str:
    lines = [f"- {peer}, {measure}: {words}" for measure, peer, words in results.errors()]
    return "### What failed\n\n" + "\n".join(lines) if lines else ""
