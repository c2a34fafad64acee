"""What jobs print, from their descriptors to the store; and what the worker prints itself."""
