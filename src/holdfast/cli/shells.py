"""Completion in bash, zsh and fish: the scripts, and how the shells say what is being typed.

Click does the rest. Its script for bash loses words with `:` and `=`, at which bash breaks them, so ours sends the line
as it is. Its items for `--queue=vi` lack the beginning, so we put it back.
"""

from __future__ import annotations

import os
import shlex
from typing import Any, ClassVar

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

VARIABLE = "_HOLDFAST_COMPLETE"

INSTALL = {
    "bash": """\
# Completion of holdfast in bash. For this shell alone: eval "$(holdfast completion bash)"
# For all: holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast
""",
    "zsh": """\
# Completion of holdfast in zsh. For this shell alone: eval "$(holdfast completion zsh)", after compinit
# For all: holdfast completion zsh > DIRECTORY/_holdfast, for a DIRECTORY that is in $fpath
""",
    "fish": """\
# Completion of holdfast in fish. For this shell alone: holdfast completion fish | source
# For all: holdfast completion fish > ~/.config/fish/completions/holdfast.fish
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


class _Whole(ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return whole words, also for the value of an option that is written with an equals sign."""
        name, equals, _ = incomplete.partition("=")
        items = super().get_completions(args, incomplete)
        if equals and name.startswith("--"):
            for item in items:
                item.value = f"{name}={item.value}"
        return items


class Bash(_Whole, BashComplete):
    source_template: ClassVar[str] = BASH

    @staticmethod
    def _check_version() -> None:
        """The script says what it needs, by failing; there may be no bash here."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["HOLDFAST_LINE"]
        words = _split(line)
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """Leave out what stands before the word that bash takes for the last."""
        _, incomplete = self.get_completion_args()
        last = os.environ["HOLDFAST_WORD"]
        before = incomplete.removesuffix(last) if incomplete.endswith(last) else ""
        return f"{item.type},{item.value.removeprefix(before)}"


def _split(line: str) -> list[str]:
    """Split a line into words; a quotation at its end may still be open."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words.append(lexer.token)
    return words


class Zsh(_Whole, ZshComplete):
    pass


class Fish(_Whole, FishComplete):
    # explanations may have commas
    source_template: ClassVar[str] = FishComplete.source_template.replace("string split ", "string split --max 1 ")


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}


def register() -> None:
    """Have click use our shells."""
    for name, shell in SHELLS.items():
        add_completion_class(shell, name)


def script(shell: str, program: Any) -> str:
    """Return the script for a shell, with a line that says how to install it."""
    made = SHELLS[shell](program, {}, "holdfast", VARIABLE).source()
    if shell == "zsh":  # its first line must stay the first
        first, _, rest = made.partition("\n")
        return f"{first}\n{INSTALL[shell]}{rest}"
    return f"{INSTALL[shell]}{made}"
