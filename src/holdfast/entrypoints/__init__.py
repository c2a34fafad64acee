"""The programs that a worker starts with `python -m`; they import the app."""
