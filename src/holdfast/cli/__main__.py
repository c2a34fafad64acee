"""`python -m holdfast.cli` is `holdfast`."""

from holdfast.cli.app import main

main()
