"""A shop whose jobs are declared in several modules."""
