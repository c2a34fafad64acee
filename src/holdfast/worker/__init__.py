"""The worker: it runs jobs."""
