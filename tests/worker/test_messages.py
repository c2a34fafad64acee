"""The messages between the processes of a worker: each is declared once, sent by one process and handled by another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

import holdfast
from holdfast.job import outcome
from holdfast.job.outcome import Outcome
from holdfast.worker import messages
from holdfast.worker.transport import MAX_MESSAGE, MessageBuffer, ignoring_unknown

SOURCE = Path(holdfast.__file__).parent
UNIONS = {
    name: get_args(getattr(messages, name))
    for name in ("FromSupervisor", "FromExecutor", "ToJob", "FromJob", "FromZygote")
} | {"ToZygote": (messages.StartProcess,)}
ALL = messages.Message.__subclasses__()
OUTCOMES: list[Outcome] = [
    outcome.Advanced("task", {"queue": "default"}, b"[]"),
    outcome.Succeed(b"1", "a note"),
    outcome.Error(b"{}", "group", final="refused", delay=10),
    outcome.Crash(b"{}"),
    outcome.Release("reason", 1000),
    outcome.Unknown(),
    outcome.Snoozed(5),
    outcome.Cancelled(),
]


def text(but: str) -> str:
    return "\n".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != but)


def test_each_message_has_one_sender() -> None:
    declared = [message for union in UNIONS.values() for message in union]

    assert len(declared) == len(set(declared))
    assert set(declared) == set(ALL)


@pytest.mark.parametrize("message", ALL, ids=lambda message: message.__name__)
def test_each_message_is_sent_and_handled(message: type[messages.Message]) -> None:
    assert len(re.findall(rf"\b{message.__name__}\b\(?", text(but="messages.py"))) >= 2


@pytest.mark.parametrize("ended", OUTCOMES, ids=lambda ended: type(ended).__name__)
def test_an_outcome_arrives_as_it_was_sent(ended: Outcome) -> None:
    packed = messages.pack(messages.JobEnded.of(ended))

    arriving: MessageBuffer[messages.FromJob] = MessageBuffer(messages.decoder(messages.FromJob))
    (message,) = arriving.add(packed)

    assert isinstance(message, messages.JobEnded)
    assert message.outcome == ended


def test_messages_arrive_whole_however_they_are_cut() -> None:
    sent = [messages.Stop(1.5), messages.Retire(), messages.Interrupt("id", 3, "cancelled")]
    data = b"".join(map(messages.pack, sent))
    arriving: MessageBuffer[messages.FromSupervisor] = MessageBuffer(messages.decoder(messages.FromSupervisor))

    arrived = [message for byte in data for message in arriving.add(bytes([byte]))]

    assert arrived == sent


@pytest.mark.parametrize(
    "data", [(MAX_MESSAGE + 1).to_bytes(4), messages.pack(messages.Retire())], ids=["too long", "of another sender"]
)
def test_what_is_not_a_message_of_the_sender_is_refused(data: bytes) -> None:
    arriving: MessageBuffer[messages.FromJob] = MessageBuffer(messages.decoder(messages.FromJob))

    with pytest.raises((ConnectionError, msgspec.MsgspecError)):
        list(arriving.add(data))


def test_supervisor_and_executor_ignore_a_message_of_another_release(caplog: pytest.LogCaptureFixture) -> None:
    newer = msgspec.msgpack.encode(["Teleport", 1])
    data = b"".join(
        (messages.pack(messages.Stop(1.5)), len(newer).to_bytes(4) + newer, messages.pack(messages.Retire()))
    )
    decode = ignoring_unknown(messages.decoder(messages.FromSupervisor), "supervisor")

    assert [*MessageBuffer(decode).add(data)] == [messages.Stop(1.5), None, messages.Retire()]
    assert "ignored a message of the supervisor of a kind that this release does not know: Teleport" in caplog.text


@pytest.mark.parametrize("body", [["JobsClaimed", [["id", 1]]], ["AppLoaded"], [], 7], ids=str)
def test_a_message_of_a_known_kind_that_cannot_be_decoded_is_an_error(body: object) -> None:
    decode = ignoring_unknown(messages.decoder(messages.FromExecutor), "executor")

    with pytest.raises(msgspec.MsgspecError):
        decode(msgspec.msgpack.encode(body))


@pytest.mark.parametrize(
    "message", [messages.ProcessEnded(2**22, -1, 2**45), messages.StartProcess(messages.SPAWN)], ids=["ended", "start"]
)
def test_a_message_of_the_zygote_fits_into_a_packet(message: messages.Message) -> None:
    assert len(messages.encode(message)) <= messages.MAX_PACKET
