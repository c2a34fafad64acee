"""`enqueue` warns on standard error that no worker will run the job. The job is stored nevertheless."""

from __future__ import annotations

from tests.support.shells import Shell, running_worker, wait_until


def test_enqueue_warns_that_no_worker_serves_a_queue_or_knows_a_task(shell: Shell) -> None:
    words = ("enqueue", "tasks.add", "x=1")
    alone = shell(*words)
    assert (alone.code, alone.err) == (
        0,
        "holdfast: the job waits: no worker is running; start one: `holdfast work APP`\n",
    )
    with_app = shell("enqueue", "add", "1", "2", "--app", "tasks", "--queue", "mail")
    assert with_app.err.endswith("start one: `holdfast work tasks --queues mail`\n")
    with running_worker(shell, "--queues", "default,video-*"):
        tasks = ["tasks.add", "tasks.greet", "tasks.fail"]
        wait_until(lambda: [worker.tasks for worker in shell.client.workers()] == [tasks])
        assert shell(*words).err == ""
        assert shell(*words, "--queue", "video-new").err == ""
        assert shell(*words, "--queue", "defualt").err == (
            "holdfast: the job waits: no live worker serves queue defualt; did you mean default?\n"
        )
        assert shell(*words, "--queue", "mail").err == (
            "holdfast: the job waits: no live worker serves queue mail; they serve default, video-*; start one: "
            "`holdfast work APP --queues mail`\n"
        )
        unknown = shell("enqueue", "tasks.ad", "x=1")
        assert unknown.code == 0
        assert unknown.err == (
            "holdfast: the job waits: no live worker of queue default knows task tasks.ad; did you mean tasks.add?\n"
        )
        assert shell.client.get(unknown.out.strip()).task == "tasks.ad"
        assert "knows task nothing.like.it; these were asked: " in shell("enqueue", "nothing.like.it").err


def test_a_misspelt_limit_is_reported_without_a_terminal_too(shell: Shell) -> None:
    shell("limits", "set", "api", "1")
    err = shell("enqueue", "tasks.add", "x=1", "--limit", "apl").err
    assert "holdfast: limit apl is not defined, so it has no effect; did you mean api?\n" in err


def test_a_limit_that_the_app_declares_is_not_reported_before_a_worker_has_defined_it(shell: Shell) -> None:
    words = ("enqueue", "render", "a", "--app", "tests.apps.declared_limits_app")
    assert "not defined" not in shell(*words, "--limit", "gpu", "--limit", "tenant:acme").err
    assert "limit apl is not defined" in shell(*words, "--limit", "apl").err
