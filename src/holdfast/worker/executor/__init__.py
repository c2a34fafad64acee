"""A process of a worker that imports the app, claims jobs and runs them."""
