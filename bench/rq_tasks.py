"""The task for RQ, in a module that imports nothing: RQ imports it anew for each job that it forks."""


def nothing(number: int) -> int:
    return number
