"""A job seen from inside: what a task asks of `current_job()`."""
