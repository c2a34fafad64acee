"""`holdfast why`, and the same sentence in `show`, `wait` and `enqueue --wait`."""

from __future__ import annotations

from tests.support.shells import Shell


def test_why_says_it_in_a_sentence_with_the_command_that_helps(shell: Shell) -> None:
    shell.put("mine")
    ended = shell("why", "mine")
    assert (ended.code, ended.rows) == (0, [["mine", "waiting", "no worker is running", "holdfast work APP"]])
    shell.client.pause("default")
    [row] = shell("why", "mine").rows
    assert row[2:] == ["queue default is paused; also, no worker is running", "holdfast queues resume default"]


def test_why_of_many_jobs_reads_ids_from_standard_input(shell: Shell) -> None:
    shell.put("a")
    shell("enqueue", "tasks.add", "--id", "b", "--delay", "1h")
    ended = shell("why", stdin="a\tx\nb\n")
    assert [row[:2] for row in ended.rows] == [["a", "waiting"], ["b", "scheduled"]]
    assert ended.rows[1][2].startswith("it is due in ")


def test_why_as_json_has_the_code_the_facts_and_further_reasons(shell: Shell) -> None:
    shell("enqueue", "tasks.add", "--id", "mine", "--delay", "1h")
    [found] = shell("why", "mine", "--json").json
    assert (found["code"], found["ready"], found["ahead"]) == ("not-due", False, 0)
    assert found["until"] == found["facts"]["due"]
    assert [(each["code"], each["text"]) for each in found["also"]] == [("no-worker", "no worker is running")]


def test_why_of_a_job_that_does_not_exist(shell: Shell) -> None:
    shell.put("begun-by-us")
    ended = shell("why", "begun-by-", "begun-by-us")
    assert ended.code == 3
    assert "job begun-by- does not exist; did you mean begun-by-us?" in ended.err
    assert [row[0] for row in ended.rows] == ["begun-by-us"]


def test_show_has_the_explanation_until_the_job_has_ended(shell: Shell) -> None:
    shell.put("mine")
    assert shell("show", "mine", "--json").json["explanation"]["code"] == "no-worker"
    shell.client.cancel("mine")
    assert shell("show", "mine", "--json").json["explanation"] is None


def test_a_timeout_of_wait_says_why(shell: Shell) -> None:
    shell.put("a")
    shell("enqueue", "tasks.add", "--id", "b", "--delay", "1h")
    ended = shell("wait", "a", "b", "--timeout", "100ms")
    assert ended.code == 5
    assert "before 2 of 2 jobs ended; the jobs are not affected; a is waiting: no worker is running; b is" in ended.err
    assert "b is scheduled: it is due in" in ended.err


def test_a_timeout_of_enqueue_with_wait_says_why(shell: Shell) -> None:
    ended = shell("enqueue", "tasks.add", "x=1", "--wait", "--timeout", "100ms")
    assert ended.code == 5
    assert "has not ended within the timeout; it is still waiting: no worker is running" in ended.err
