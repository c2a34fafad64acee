"""The command that prints completion scripts."""

from __future__ import annotations

import click

from holdfast.cli.output import write
from holdfast.cli.session import command


@command(
    "completion",
    'eval "$(holdfast completion bash)"',
    "holdfast completion zsh > ~/.zfunc/_holdfast",
    "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
    shared=(),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes words in a shell.

    These are commands, options, states, and names and ids that there are. Its first lines say how to install it. Names
    of queues, jobs and tasks come from the store, if it runs and answers at once; pressing Tab starts no server.
    """
    from holdfast.cli.shells import script

    write(script(shell, context.find_root().command), end="")
