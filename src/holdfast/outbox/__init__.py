"""Enqueues while the server is unreachable."""
