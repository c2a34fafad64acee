"""`python -m holdfast` is the program `holdfast`."""

from holdfast.cli import main

main()
