from shop.mail import welcome
from shop.reports import count
from shop.worker import jobs

from holdfast.testing import crash_everywhere


def test_a_worker_knows_the_tasks_of_all_modules():
    assert {*jobs.tasks} == {"mail.welcome", "reports.count"}


def test_everybody_gets_a_mail(holdfast_app):
    count.enqueue(["ann@example.org", "bob@example.org"])
    holdfast_app.run_until_empty()
    holdfast_app.assert_enqueued(welcome, 2)
    holdfast_app.assert_enqueued(welcome, 1, address="bob@example.org")
    holdfast_app.assert_nothing_pending()


def test_nobody_gets_two_mails_after_a_crash():
    crash_everywhere(count.bind(["ann@example.org", "bob@example.org"]))
