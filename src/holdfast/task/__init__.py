"""A task: a function with options, and a call of it."""
