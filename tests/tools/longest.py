"""Print the longest functions and modules: whoever lengthens them explains."""

from __future__ import annotations

import ast
from pathlib import Path


def main() -> None:
    functions, modules = [], []
    for path in sorted(Path("src").rglob("*.py")):
        text = path.read_text()
        modules.append((text.count("\n"), str(path)))
        functions += [
            ((node.end_lineno or 0) - node.lineno + 1, f"{path}:{node.lineno} {node.name}")
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
    for what, rows in (("functions", functions), ("modules", modules)):
        print(f"longest {what}:")
        for length, where in sorted(rows, reverse=True)[:3]:
            print(f"  {length:4d}  {where}")


if __name__ == "__main__":
    main()
