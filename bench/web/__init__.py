"""What the dashboard and the REST API cost on a large store: `python -m bench.web`."""
