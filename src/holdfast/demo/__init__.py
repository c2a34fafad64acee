"""The demonstration: `holdfast demo`."""
