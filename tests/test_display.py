"""Progress output: a live line in a terminal, plain lines elsewhere, and nothing if quiet."""

import io
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

import pytest
from rich.console import Console

import running
from twofold import display as display_module
from twofold.display import Display, status_line


def test_plain_lines_are_printed_at_intervals_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(display_module.time, "monotonic", lambda: clock[0])
    out = io.StringIO()
    display = Display(console=Console(file=out, width=120))
    with display.stage("training", 100) as stage:
        for step in range(1, 101):
            clock[0] += 1
            if step % 25 == 0:
                stage.note(step, f"loss {step}")
            stage(step)
    lines = out.getvalue().splitlines()
    assert lines[0] == "training: 10/100"
    assert lines[-1] == "training: 100/100  loss 100"
    assert "training: 30/100  loss 25" in lines
    assert len(lines) == 10


def test_work_of_unknown_length_shows_the_elapsed_time() -> None:
    out = io.StringIO()
    with Display(console=Console(file=out, width=120, force_terminal=True)).stage("map of 10 images", None):
        pass
    assert "map of 10 images" in out.getvalue()
    assert "0:00:00" in out.getvalue()
    assert "?" not in out.getvalue().replace("\x1b[?25", "")


@pytest.mark.parametrize("width, cut", [(80, True), (140, False)])
def test_narrow_terminal_truncates_only_the_note(width: int, cut: bool) -> None:
    out = io.StringIO()
    with Display(console=Console(file=out, width=width, force_terminal=True)).stage(
        "training", 1000, keep=True
    ) as stage:
        stage.note(333, "epoch 3.14/10 · online 50.0 % · rank 12.1 · loss 3.14 (variance 12.1, invariance 3.1)")
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).splitlines()[-1]
    assert re.match(r"training ━.* 333/1000 \S+ epoch 3.14/10 · online 50.0 %", last)
    assert len(last) <= width
    assert ("invariance" not in last) == cut


def test_quiet_prints_nothing() -> None:
    out = io.StringIO()
    display = Display(quiet=True, console=Console(file=out))
    display.say("hello")
    with display.stage("training", 1) as stage:
        stage.note(1, "loss 1")
    assert out.getvalue() == ""


def test_status_line_starts_with_the_accuracy_and_ends_with_the_loss_terms() -> None:
    line = {"epoch": 1.0, "loss": 3.0, "loss/variance": 1.0, "loss/invariance": 2.0, "effective_rank": 12.34}
    assert status_line([line]) == "rank 12.3 · loss 3 (variance 1, invariance 2)"
    line = {"epoch": 1.0, "loss": 1.5, "loss/info_nce": 1.5, "online_train_accuracy": 0.5, "online_accuracy": 0.75}
    assert status_line([line]) == "online 75.0 % · loss 1.5"
    del line["online_accuracy"]
    assert status_line([line]) == "training views 50.0 % · loss 1.5"


def test_status_line_shows_the_latest_value_of_each_measure_with_its_epoch() -> None:
    lines = [
        {"epoch": 2.0, "loss": 3.0, "online_accuracy": 0.4, "effective_rank": 9.0},
        {"epoch": 3.0, "loss": 2.0, "online_accuracy": 0.5},
        {"epoch": 3.5, "loss": 1.0, "online_train_accuracy": 0.9},
    ]
    assert status_line(lines) == "online 50.0 % (epoch 3) · rank 9.0 · loss 1"


def test_terminal_shows_a_live_line(tmp_path: Path) -> None:
    settings = [f"{key}={value}" for key, value in running.small("frossl", epochs=2).items()]
    leader, follower = pty.openpty()
    command = running.command("pretrain", "--out", str(tmp_path / "run"), *settings)
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    seen, deadline = b"", time.monotonic() + 120
    while time.monotonic() < deadline and (process.poll() is None or select.select([leader], [], [], 0)[0]):
        if select.select([leader], [], [], 0.2)[0]:
            try:
                seen += os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
    os.close(leader)
    assert process.wait(timeout=60) == 0, seen.decode()
    text = seen.decode()
    for expected in ("frossl on digits", "22/22", "images/s", "raw pixels"):
        assert expected in text
    assert re.search(r"epoch 2/2 · online \d+\.\d % · rank \d+\.\d · loss ", text)
    assert "\x1b[" in text, "a live line needs control sequences"
