"""The version of Holdfast, as `holdfast --version` and workers report it."""

__version__ = "0.1.0"
