"""A job seen from outside: its record, its options, how its attempts ended."""
