"""Events: what happened to jobs, queues, limits, schedules and workers."""
