"""`holdfast demo`: jobs that survive `kill -9`."""

from __future__ import annotations

import click

from holdfast.cli.command import command


@command("demo", "holdfast demo", "holdfast demo --keep", shared=())
@click.option(
    "--keep", is_flag=True, help="Use the server of this project, keep the jobs for inspection, and run until Ctrl-C."
)
def demo(keep: bool) -> int:
    """Watch jobs finish although their processes are killed again and again."""
    from holdfast.demo import demo as demonstration

    return demonstration.run(keep=keep)
