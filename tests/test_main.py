"""Start and end of the program: Ctrl-C before, during and after the imports."""

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


def test_ctrl_c_during_imports_ends_the_program_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """KeyboardInterrupt during an import would leave half-initialized modules, which cause confusing errors."""
    seen = []

    def run() -> None:
        seen.append(signal.getsignal(signal.SIGINT))
        with handle_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    monkeypatch.setattr(cli, "main", run)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    twofold.__main__.main()
    assert seen == [signal.SIG_DFL, signal.default_int_handler]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as for background jobs
    twofold.__main__.main()
    assert seen[2:] == [signal.SIG_IGN, signal.SIG_IGN]


def test_signal_handler_of_the_caller_is_kept() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with handle_interrupts():
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.parametrize(
    "stop, code, message",
    [
        (Interrupted("runs/a b", 15), 143, "stopped and saved; resume with: twofold resume 'runs/a b' new/photos"),
        (Stopped("runs/1"), 130, "stopped; resume from the last checkpoint with: twofold resume runs/1 new/photos"),
        (KeyboardInterrupt(), 130, "stopped; nothing was written"),
    ],
)
def test_interrupted_run_prints_how_to_resume(
    stop: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, handle_interrupts("new/photos"):
        raise stop
    assert ended.value.code == code
    assert message in capsys.readouterr().err
