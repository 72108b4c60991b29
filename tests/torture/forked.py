"""`Forked`: a process that is forked from this one, so that it costs no time for imports, and can be killed."""

import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

from twofold.errors import Interrupted, TwofoldError

DONE, REFUSED, STOPPED, FAILED, KILLED, SLOW = "done", "refused", "stopped", "failed", "killed", "slow"


class Outcome(NamedTuple):
    """How a process ended: `refused` means with an error of Twofold, `failed` with any other error."""

    kind: str
    text: str  # the message of an error, or what the work returned


class Forked:
    """Do work in a child process. This process must have one thread, because a fork copies only the thread that calls.

    Parameters
    ----------
    work
        Called in the child. It returns text.
    """

    def __init__(self, work: Callable[[], str | None]):
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._read)
            _work(work, write)
        os.close(write)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def wait(self, seconds: float = 120) -> Outcome:
        """Return the outcome. A process that needs longer is killed, and counts as slow."""
        end, content = time.monotonic() + seconds, b""
        while select.select([self._read], [], [], max(0, end - time.monotonic()))[0]:
            part = os.read(self._read, 2**16)
            content += part
            if not part:
                break
        else:
            self.kill()
        is_late = time.monotonic() > end
        os.close(self._read)
        _, status = os.waitpid(self.pid, 0)
        if content:
            return Outcome(*json.loads(content))
        if is_late:
            return Outcome(SLOW, f"it took longer than {seconds:g} s")
        number = os.waitstatus_to_exitcode(status)
        ends = {-signal.SIGKILL: KILLED, -signal.SIGTERM: STOPPED}
        return Outcome(ends.get(number, FAILED), f"exit code {number}")


def _work(work: Callable[[], str | None], write: int) -> None:
    """Do the work of a child, write its outcome, and end the process without the cleanup of the parent."""
    try:
        outcome = Outcome(DONE, work() or "")
    except TwofoldError as error:
        outcome = Outcome(REFUSED, str(error))
    except Interrupted as error:
        outcome = Outcome(STOPPED, str(error))
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/twofold" in frame.filename]
        place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
        outcome = Outcome(FAILED, f"{type(error).__name__} at {place}: {str(error)[:200]}")
    try:
        content = json.dumps(outcome).encode()
        while content:
            content = content[os.write(write, content) :]
    finally:
        os._exit(0)
