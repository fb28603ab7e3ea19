"""The connection: whatever the other end does, the training thread goes on."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from litd import wire
from litd.kernels import Columns, NameTable
from litd.link import Link
from litd.patience import Patience
from tests import standin
from tests.standin import StandIn, wait_for

HELLO = wire.Hello("job", 0, 0, 2, 2, "0000:05:00.0", versions={"torch": "2.9"})
QUICK = Patience(0.01, 0.05)


@dataclass
class Sample:
    """A measured iteration with so many kernels of so many names."""

    iteration: int
    kernels: int
    names: int = 1
    duration_ns: int = 5
    ended_ns: int = 0
    overhead_ns: int = 0
    dropped: bool = False
    why: str = ""

    def collect(self, names: NameTable, wanted: Callable[[], bool]) -> Columns | None:
        columns = Columns()
        for at in range(self.kernels):
            columns.add(
                names.id_of(f"{self.iteration}.{at % self.names}"),
                7,
                wire.Class.COPY,
                at * 1000,
                at * 1000 + 10,
            )
        return columns

    def drop(self) -> None:
        self.dropped = True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ingest.sock"


Links = Callable[..., Link]


@pytest.fixture
def links(path: Path) -> Iterator[Links]:
    made: list[Link] = []

    def make(**more: object) -> Link:
        link = Link(str(path), lambda: HELLO, NameTable(), patience=QUICK, **more)  # type: ignore[arg-type]
        made.append(link)
        link.start()
        return link

    yield make
    for link in made:
        link.close("test is over")
    wait_for("threads end", lambda: not any(link.is_alive for link in made))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_hello_welcome_directive_ticks_samples_bye(path: Path, links: Links) -> None:
    with StandIn(path, standin.welcome(10, 5)) as litd:
        link = links()
        session = litd.session()
        assert session.said[0].fields == {
            "protocol": 1,
            "job": "job",
            "rank": 0,
            "local_rank": 0,
            "world_size": 2,
            "local_world_size": 2,
            "gpu": "0000:05:00.0",
            "framework": "pytorch",
            "group": "",
            "versions": {"torch": "2.9"},
        }
        wait_for("welcome", lambda: link.welcomed)
        assert link.directive == wire.Directive(10, 5)
        session.say(standin.directive(20, 7))
        wait_for("directive", lambda: link.directive == wire.Directive(20, 7))
        link.send(wire.Tick(3, 1_000_000, profiled=True, overhead_ns=7))
        link.send(Sample(3, 2))
        link.send(Sample(4, 3, names=2))
        link.send(wire.Notice(wire.Kind.PROFILING_OFF, "off"))
        wait_for("samples", lambda: len(litd.heard("kernels")) == 2)
        [tick] = litd.heard("tick")
        assert tick.fields == {
            "iteration": 3,
            "duration_ns": 1_000_000,
            "profiled": 1,
            "overhead_ns": 7,
        }
        first, second = litd.heard("kernels")
        assert (first.new_names, first.name) == (["3.0"], [0, 0])
        assert (second.new_names, second.name) == (["4.0", "4.1"], [1, 2, 1])
        assert second.start_ns == [0, 1000, 2000]
        wait_for("notice", lambda: litd.heard("notice"))
        link.close("done")
        wait_for("bye", lambda: [said.reason for said in litd.heard("bye")] == ["done"])


def test_without_a_daemon_there_is_one_warning_and_a_later_one_is_found(
    path: Path, links: Links, caplog: pytest.LogCaptureFixture
) -> None:
    link = links()
    wait_for("warning", lambda: warnings(caplog))
    time.sleep(0.3)
    link.send(wire.Tick(1, 1))
    assert len(warnings(caplog)) == 1
    assert str(path) in warnings(caplog)[0]
    with StandIn(path, standin.welcome()):
        wait_for("welcome", lambda: link.welcomed)
    assert len(warnings(caplog)) == 1


def test_a_daemon_that_comes_back_gets_all_names_anew(path: Path, links: Links) -> None:
    with StandIn(path, standin.welcome(0, 1)) as litd:
        link = links()
        wait_for("welcome", lambda: link.welcomed)
        link.send(Sample(1, 2, names=2))
        wait_for("sample", lambda: litd.heard("kernels"))
    wait_for("loss", lambda: not link.welcomed)
    assert link.directive == wire.Directive()
    with StandIn(path, standin.welcome(0, 1)) as litd:
        wait_for("welcome", lambda: link.welcomed)
        link.send(Sample(2, 1))
        wait_for("sample", lambda: litd.heard("kernels"))
        [said] = litd.heard("kernels")
        assert (said.new_names, said.name) == (["1.0", "1.1", "2.0"], [2])


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff" * 64,
        b"\0\0\0\0",
        wire.frame(b"\x0a\x05abc"),
        wire.frame(b"\x0b\x0c"),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_garbage_ends_the_connection_and_is_tried_again(
    path: Path, links: Links, caplog: pytest.LogCaptureFixture, answer: bytes
) -> None:
    with StandIn(path, answer) as litd:
        link = links()
        litd.session(2)
        assert not link.welcomed
        assert len(warnings(caplog)) == 1
        litd.answer = standin.welcome()
        wait_for("welcome", lambda: link.welcomed)


def test_a_refusal_for_good_is_the_end(
    path: Path, links: Links, caplog: pytest.LogCaptureFixture
) -> None:
    with StandIn(path, standin.refusal(wire.Code.PROTOCOL, reason="too old")) as litd:
        link = links()
        wait_for("end", lambda: not link.is_alive)
        assert len(litd.sessions) == 1
        [warning] = warnings(caplog)
        assert "protocol" in warning
        assert "too old" in warning


def test_a_refusal_for_now_is_tried_again_not_before_its_time(path: Path, links: Links) -> None:
    with StandIn(path, standin.refusal(wire.Code.BUSY, 300)) as litd:
        link = links()
        litd.session()
        began = time.monotonic()
        litd.answer = standin.welcome()
        wait_for("welcome", lambda: link.welcomed)
        assert time.monotonic() - began > 0.25


def test_a_protocol_that_this_hook_does_not_speak_is_the_end(path: Path, links: Links) -> None:
    with StandIn(path, standin.welcome(0, 1, protocol=2)) as litd:
        link = links()
        litd.session()
        wait_for("end", lambda: not link.is_alive)
        assert not link.welcomed


def test_a_directory_in_the_sockets_place(path: Path, links: Links) -> None:
    with StandIn(path, standin.welcome()):
        link = links()
        wait_for("welcome", lambda: link.welcomed)
    path.mkdir()
    wait_for("loss", lambda: not link.welcomed)
    time.sleep(0.2)
    path.rmdir()
    with StandIn(path, standin.welcome()):
        wait_for("welcome", lambda: link.welcomed)


@pytest.mark.parametrize("name", ["x" * 300, "with\0null", ""])
def test_paths_that_no_socket_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    link = Link(str(tmp_path / name), lambda: HELLO, NameTable(), patience=QUICK)
    link.start()
    wait_for("warning", lambda: warnings(caplog))
    link.close("done")
    assert not link.is_alive


def test_a_daemon_that_reads_nothing_never_blocks_the_training_thread(
    path: Path, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litd.link.STUCK_SECONDS", 0.5)
    with StandIn(path, reads=False) as litd:
        link = links()
        wait_for("connection", lambda: litd.sessions)
        litd.sessions[0].say(standin.welcome(0, 1))
        wait_for("welcome", lambda: link.welcomed)
        longest = 0.0
        for iteration in range(200_000):
            began = time.perf_counter()
            link.send(wire.Tick(iteration, 1))
            if iteration % 20_000 == 0:
                link.send(Sample(iteration, 50_000))
            # Time in which another process had the core is not the hook's.
            longest = max(longest, time.perf_counter() - began)
        assert longest < 1.0
        wait_for("given up", lambda: len(litd.sessions) > 1)


def test_a_daemon_that_never_answers_is_given_up(
    path: Path, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litd.link.WELCOME_SECONDS", 0.3)
    with StandIn(path) as litd:
        links()
        litd.session(1)


def test_what_is_not_welcome_sends_nothing_but_a_hello(path: Path, links: Links) -> None:
    with StandIn(path) as litd:
        link = links()
        session = litd.session()
        link.send(wire.Tick(1, 1))
        link.close("done")
        wait_for("end", lambda: session.ended)
        assert [said.kind for said in session.said] == ["hello"]


def test_a_notice_waits_for_a_connection(path: Path, links: Links) -> None:
    link = links()
    link.send(wire.Notice(wire.Kind.PROFILING_OFF, "off"))
    with StandIn(path, standin.welcome()) as litd:
        wait_for("notice", lambda: [said.text for said in litd.heard("notice")] == ["off"])


def test_samples_that_litd_does_not_take_are_dropped_by_the_links_thread(
    path: Path, links: Links
) -> None:
    with StandIn(path, standin.welcome(0, 1), reads=False) as litd:
        link = links()
        wait_for("connection", lambda: litd.sessions)
        litd.sessions[0].say(litd.answer)
        wait_for("welcome", lambda: link.welcomed)
        samples = [Sample(at, 20_000, names=20_000) for at in range(30)]
        for sample in samples:
            link.send(sample)
        wait_for("the last one is dropped", lambda: samples[-1].dropped)
        assert not samples[0].dropped


@pytest.mark.parametrize(
    "words", [standin.directive(1, 1) * 20_000, b"\xff\xff\0\0" + b"\0" * 65535]
)
def test_a_litd_that_talks_without_end_is_not_listened_to(
    path: Path, links: Links, caplog: pytest.LogCaptureFixture, words: bytes
) -> None:
    with StandIn(path, standin.welcome() + words) as litd:
        links()
        litd.session(2)
    assert len(warnings(caplog)) == 1
    assert "more than this hook accepts" in caplog.text or "65535 bytes" in caplog.text


def test_litd_is_told_once_why_no_samples_come(path: Path, links: Links) -> None:
    class Missed(Sample):
        def collect(self, names: NameTable, wanted: Callable[[], bool]) -> Columns | None:
            self.why = f"reason {self.iteration}"
            return None

    with StandIn(path, standin.welcome(0, 1)) as litd:
        link = links()
        wait_for("welcome", lambda: link.welcomed)
        # Two in a row are no reason to worry.
        for sample in (Missed(1, 1), Missed(2, 1), Sample(3, 1), Missed(4, 1), Missed(5, 1)):
            link.send(sample)
        wait_for("sample", lambda: litd.heard("kernels"))
        for iteration in range(6, 20):
            link.send(Missed(iteration, 1))
        link.send(Sample(20, 1))
        wait_for("sample", lambda: len(litd.heard("kernels")) == 2)
        wait_for("why", lambda: litd.heard("notice"))
        assert [said.fields for said in litd.heard("notice")] == [
            {"kind": wire.Kind.UNSPECIFIED, "text": "no samples: reason 6", "samples": 0}
        ]


def test_a_sample_that_can_not_be_collected_is_left_out(
    path: Path, links: Links, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Sample):
        def collect(self, names: NameTable, wanted: Callable[[], bool]) -> Columns | None:
            raise RuntimeError("the profiler has lost it")

    with StandIn(path, standin.welcome(0, 1)) as litd:
        link = links()
        wait_for("welcome", lambda: link.welcomed)
        for iteration in range(5):
            link.send(Broken(iteration, 1))
        link.send(Sample(5, 1))
        wait_for("sample", lambda: [said.iteration for said in litd.heard("kernels")] == [5])
        assert len(warnings(caplog)) == 1


def test_somebody_who_is_nobody_is_not_told_of(path: Path) -> None:
    with StandIn(path, standin.welcome()) as litd:
        link = Link(str(path), lambda: None, NameTable(), patience=QUICK)
        link.start()
        wait_for("end", lambda: not link.is_alive)
        link.send(wire.Tick(1, 1))
        link.close("done")
        assert litd.sessions == []


def test_a_forked_child_does_not_keep_the_connection(path: Path, links: Links) -> None:
    with StandIn(path, standin.welcome()) as litd:
        link = links()
        wait_for("welcome", lambda: link.welcomed)
        session = litd.session()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            link.send(wire.Tick(99, 1))
            link.close("from the child")
            os.read(reading, 1)
            os._exit(0)
        link.close("from the parent")
        wait_for("end of connection while the child lives", lambda: session.ended)
        os.write(writing, b"x")
        assert os.waitpid(child, 0)[1] == 0
        os.close(reading)
        os.close(writing)
        assert litd.heard("tick") == []
        assert [said.reason for said in litd.heard("bye")] == ["from the parent"]


def test_many_files_may_be_open(path: Path, links: Links) -> None:
    held = [socket.socketpair() for _ in range(600)]
    try:
        with StandIn(path, standin.welcome()) as litd:
            link = links()
            wait_for("welcome", lambda: link.welcomed)
            link.send(wire.Tick(1, 1))
            wait_for("tick", lambda: litd.heard("tick"))
            link.close("done")
    finally:
        for pair in held:
            for one in pair:
                one.close()


def test_a_litd_that_fails_after_each_welcome_is_tried_less_and_less(
    path: Path, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []

    def after(_patience: Patience, failures: int) -> float:
        waits.append(failures)
        return 0.01

    monkeypatch.setattr(Patience, "after", after)
    with StandIn(path, standin.welcome() + b"\x07" * 999) as litd:
        links()
        litd.session(4)
        assert waits[:4] == [1, 2, 3, 4]
        monkeypatch.setattr("litd.link.LASTING_SECONDS", -1.0)
        wait_for("a litd that was well", lambda: 1 in waits[1:])


def test_the_wait_grows_up_to_a_limit() -> None:
    patience = Patience(1.0, 60.0)
    for failures, longest in [(1, 1), (2, 2), (5, 16), (9, 60), (10_000, 60)]:
        waits = [patience.after(failures) for _ in range(100)]
        assert longest / 2 <= min(waits) <= max(waits) <= longest


@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize("reused", [True, False])
def test_a_script_that_closes_all_files_ends_the_link_with_one_warning(
    path: Path, links: Links, caplog: pytest.LogCaptureFixture, connected: bool, reused: bool
) -> None:
    with contextlib.ExitStack() as stack:
        if connected:
            stack.enter_context(StandIn(path, standin.welcome()))
        link = links(watch=lambda: None)
        wait_for("connection or warning", lambda: link.welcomed or warnings(caplog))
        ours = [link._ear, link._bell]
        if connected and link._connection is not None:
            ours.append(link._connection.socket)
        numbers = [one.fileno() for one in ours]
        theirs = [socket.socketpair() for _ in numbers] if reused else []
        # As `os.closerange` does, to these alone. Then the script opens files of its own.
        for at, number in enumerate(numbers):
            if reused:
                os.dup2(theirs[at][0].fileno(), number)
            else:
                os.closerange(number, number + 1)
        link.send(wire.Tick(1, 1))
        link.set_clock(1000)
        wait_for("end", lambda: not link.is_alive)
        link.close("over")
        assert len(warnings(caplog)) == 1
        assert connected == ("has closed the hook's files" in warnings(caplog)[0])
        assert not [one for one in caplog.records if one.exc_info]
        for number, (mine, other) in zip(numbers, theirs, strict=reused):
            # Nothing was written to it, and it is open.
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(1)
            os.close(number)
            mine.close()
            other.close()


def test_a_full_queue_is_waited_for(
    path: Path, links: Links, caplog: pytest.LogCaptureFixture
) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)
    others: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        stack.callback(listener.close)
        with contextlib.suppress(BlockingIOError):
            while True:
                others.append(stack.enter_context(socket.socket(socket.AF_UNIX)))
                others[-1].setblocking(False)
                others[-1].connect(str(path))
        links()
        time.sleep(1.0)
        # It still waits, and has a place as soon as there is one.
        listener.settimeout(5.0)
        for _ in range(len(others)):
            stream, _ = listener.accept()
            stack.enter_context(stream)
        stream.settimeout(5.0)
        assert stream.recv(1 << 16)
        assert warnings(caplog) == []
