"""The program's first and last words: Ctrl-C before, during and after the imports."""

import signal
from collections.abc import Iterator

import pytest

import twofold.__main__
from twofold import cli
from twofold.cli.common import handle_interrupts
from twofold.errors import Interrupted, Stopped


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_until_there_is_something_to_say_ctrl_c_just_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import cut short by KeyboardInterrupt leaves modules in halves, whose errors nobody can read."""
    seen = []

    def run() -> None:
        seen.append(signal.getsignal(signal.SIGINT))
        with handle_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    monkeypatch.setattr(cli, "main", run)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    twofold.__main__.main()
    assert seen == [signal.SIG_DFL, signal.default_int_handler]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as of jobs in the background
    twofold.__main__.main()
    assert seen[2:] == [signal.SIG_IGN, signal.SIG_IGN]


def test_a_handler_of_the_callers_is_left_alone() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with handle_interrupts():
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.parametrize(
    "stop, code, said",
    [
        (Interrupted("runs/a b", 15), 143, "stopped and saved; resume with: twofold resume 'runs/a b' new/photos"),
        (Stopped("runs/1"), 130, "stopped; resume from the last checkpoint with: twofold resume runs/1 new/photos"),
        (KeyboardInterrupt(), 130, "stopped; nothing was written"),
    ],
)
def test_how_to_go_on_is_said_where_there_is_a_run(
    stop: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, handle_interrupts("new/photos"):
        raise stop
    assert ended.value.code == code
    assert said in capsys.readouterr().err
