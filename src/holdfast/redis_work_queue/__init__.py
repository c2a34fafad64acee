"""Queues that are shared with programs that use the protocol of redis-work-queue, on its keys."""
