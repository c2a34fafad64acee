"""Checks of a server: what its version and settings guarantee."""
