"""The first process of a worker: it starts executors, renews leases and ships logs, and runs no user code."""
