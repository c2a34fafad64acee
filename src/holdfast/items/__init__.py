"""Leases on raw bytes, without tasks and workers."""
