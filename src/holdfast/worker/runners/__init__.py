"""How a job is run: as a coroutine, in a thread, or in a process of its own."""
