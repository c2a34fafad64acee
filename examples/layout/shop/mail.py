"""Tasks that send mail."""

from shop.app import jobs


@jobs.task(queue="mail", name="mail.welcome")
def welcome(address: str) -> str:
    return f"welcome, {address}"
