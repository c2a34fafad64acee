"""`python -m holdfast.cli` is `holdfast`."""

from holdfast.cli.program import main

main()
