"""Items: leases on raw bytes, without tasks or workers."""
