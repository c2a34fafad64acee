"""The supervisor: the worker's first process. It starts executors, renews leases, and runs no user code."""
