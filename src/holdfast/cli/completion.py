"""Completion in bash, zsh and fish: the command that prints the scripts, and how the shells pass the line.

Click does the rest. Its script for bash loses words with `:` and `=`, at which bash splits words, so ours passes the
line as it is. Its items for `--queue=vi` lack the option, so ours add it.
"""

from __future__ import annotations

import os
import shlex
from typing import Any, ClassVar

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from holdfast.cli.command import command
from holdfast.cli.output import write

VARIABLE = "_HOLDFAST_COMPLETE"  # set by the scripts

INSTALL = {
    "bash": """\
# Completion of holdfast in bash. For this shell only: eval "$(holdfast completion bash)"
# For all shells: holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast
""",
    "zsh": """\
# Completion of holdfast in zsh. For this shell only: eval "$(holdfast completion zsh)", after compinit
# For all shells: holdfast completion zsh > DIRECTORY/_holdfast, for a DIRECTORY that is in $fpath
""",
    "fish": """\
# Completion of holdfast in fish. For this shell only: holdfast completion fish | source
# For all shells: holdfast completion fish > ~/.config/fish/completions/holdfast.fish
""",
}

BASH = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=',' read -r kind value; do
        case "$kind" in
            plain) COMPREPLY+=("$value") ;;
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
        esac
    done < <(HOLDFAST_LINE="${COMP_LINE:0:COMP_POINT}" HOLDFAST_WORD="$2" \\
             %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _WholeWords(ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return whole words, also for `--option=value`."""
        name, equals, _ = incomplete.partition("=")
        items = super().get_completions(args, incomplete)
        if equals and name.startswith("--"):
            for item in items:
                item.value = f"{name}={item.value}"
        return items


class Bash(_WholeWords, BashComplete):
    source_template: ClassVar[str] = BASH

    @staticmethod
    def _check_version() -> None:
        """Skip the check: bash may not be installed where the script is printed."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["HOLDFAST_LINE"]
        words = _split(line)
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """Remove the part before the last word, as bash splits words."""
        _, incomplete = self.get_completion_args()
        last = os.environ["HOLDFAST_WORD"]
        before = incomplete.removesuffix(last) if incomplete.endswith(last) else ""
        return f"{item.type},{item.value.removeprefix(before)}"


def _split(line: str) -> list[str]:
    """Split a line into words; the last quotation may be open."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words.append(lexer.token)
    return words


class Zsh(_WholeWords, ZshComplete):
    pass


class Fish(_WholeWords, FishComplete):
    # descriptions may contain commas
    source_template: ClassVar[str] = FishComplete.source_template.replace("string split ", "string split --max 1 ")


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}


def register() -> None:
    """Replace click's shells by these."""
    for name, shell in SHELLS.items():
        add_completion_class(shell, name)


def script(shell: str, program: Any) -> str:
    """Return the script for a shell, with instructions to install it."""
    text = SHELLS[shell](program, {}, "holdfast", VARIABLE).source()
    if shell == "zsh":  # `#compdef` must stay the first line
        first, _, rest = text.partition("\n")
        return f"{first}\n{INSTALL[shell]}{rest}"
    return f"{INSTALL[shell]}{text}"


@command(
    "completion",
    'eval "$(holdfast completion bash)"',
    "holdfast completion zsh > ~/.zfunc/_holdfast",
    "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
    shared=(),
)
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    Its first lines explain how to install it. It completes commands, options, states, and existing names and ids. Those
    come from the store, if it is running and replies at once; pressing Tab never starts a server.
    """
    write(script(shell, context.find_root().command), end="")
