"""Pages of the dashboard, one module each: they call resources, and render what these return."""
