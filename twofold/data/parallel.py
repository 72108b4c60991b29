"""Decode and inspect many images at the same time, in order, with constant memory: in threads or in processes.

`ItemSplit` decodes images and the readers inspect files. They use `map_in_order`, which works in threads. For many
small files, most of the time is spent in Python, where the threads of a process block each other, so `is_worthwhile` is
true and they use processes (`decode_files`, `inspect_files`).

The worker processes are separate programs. multiprocessing would run the user's script again in each worker if the
script has no `__main__` guard. A worker reads requests, each a line of JSON: [kind, paths, arguments]. It exits when
its input ends, so it never outlives its parent. If a file crashes a worker, the parent repeats the request one file at
a time. Workers refuse large images with the reason TOO_LARGE, and the parent decodes them one at a time.
"""

import json
import os
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from twofold.data.decode import (
    LARGE_PIXELS,
    Header,
    OneImage,
    Picture,
    crop_and_resize,
    inspect_file,
    square_and_picture,
    with_image,
)
from twofold.data.decode_options import USUAL, DecodeOptions, Unreadable
from twofold.data.image_formats import silence_pillow

WORKERS = min(32, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
ITEMS_PER_TASK = 16  # items per task, because a small image is decoded in less than a millisecond
FILES_PER_REQUEST = 64
LEAST_FILES = 2_000  # for fewer files, starting a process takes longer than it saves
LARGEST_SIDE = 256  # for larger images, most of the time is spent in Pillow, which threads do run in parallel
IS_WIDE_AND_SHORTER_SIDE = struct.Struct("<?i")  # of a picture
LENGTH = struct.Struct("<i")  # the length of the answer that follows; negative if the answer is an error message
CODE = "from twofold.data.parallel import serve; serve()"
ENDED = "decoding it crashed the process"

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]  # (done, total)


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None
) -> Iterator[Result]:
    """Like `map`, but in threads, with a bounded number of waiting results. Pillow releases the GIL while decoding."""
    threads = threads or WORKERS
    pool = ThreadPoolExecutor(threads)
    waiting: deque[Future[list[Result]]] = deque()
    supply = iter(items)

    def work(chunk: list[Item]) -> list[Result]:
        return [function(item) for item in chunk]

    try:
        while chunk := list(islice(supply, ITEMS_PER_TASK)):
            waiting.append(pool.submit(work, chunk))
            if len(waiting) > 2 * threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def with_progress(results: Iterable[Result], total: int, progress: Progress | None) -> Iterator[Result]:
    """Yield the results and report progress. A result is reported after the caller has used it."""
    for done, result in enumerate(results, start=1):
        yield result
        if progress is not None:
            progress(done, total)


def is_worthwhile(files: int, side: int = 0) -> bool:
    """Whether processes are faster than threads for this number of files with this median side.

    `side` is 0 if only headers are read.
    """
    return files >= LEAST_FILES and side <= LARGEST_SIDE and WORKERS > 1 and bool(sys.executable)


def decode_files(
    paths: Iterable[Path], size: int, channels: int, options: DecodeOptions = USUAL
) -> Iterator[np.ndarray | str]:
    """Yield each file as uint8 [channels, size, size], in order, or the reason why it cannot be read."""
    for content, good in _request("decode", paths, [options, size, channels]):
        yield np.frombuffer(content, np.uint8).reshape(channels, size, size) if good else content.decode()


def decode_with_pictures(
    paths: Iterable[Path], size: int, channels: int, picture_size: int, options: DecodeOptions = USUAL
) -> Iterator[tuple[np.ndarray, Picture] | str]:
    """Yield the square and the `Picture` of each file, in order, or the reason why it cannot be read."""
    square = channels * size * size
    for content, good in _request("decode with picture", paths, [options, size, channels, picture_size]):
        if not good:
            yield content.decode()
            continue
        is_wide, shorter = IS_WIDE_AND_SHORTER_SIDE.unpack_from(content)
        pixels = np.frombuffer(content, np.uint8, offset=IS_WIDE_AND_SHORTER_SIDE.size)
        picture = Picture(pixels[square:].reshape(-1, channels, shorter), is_wide)
        yield pixels[:square].reshape(channels, size, size), picture


def inspect_files(paths: Iterable[Path], options: DecodeOptions = USUAL) -> Iterator[tuple[int, Header | str]]:
    """Yield `inspect_file` of each file, in order."""
    for content, good in _request("inspect", paths, [options]):
        ends, *header, reason = json.loads(content) if good else (0, content.decode())
        yield ends, reason if reason is not None else Header(*header)


def _request(what: str, paths: Iterable[Path], arguments: list[Any]) -> Iterator[tuple[bytes, bool]]:
    """Yield the answer for each path, in order, and True; for an unreadable file, yield the reason and False.

    The first of the arguments are the options.
    """
    arguments = [vars(arguments[0]), *arguments[1:]]
    supply = iter(paths)
    requests = iter(lambda: [str(path) for path in islice(supply, FILES_PER_REQUEST)], [])
    workers = [_Worker(what, arguments) for _ in range(WORKERS)]
    pending: deque[tuple[_Worker, list[str]]] = deque()
    try:
        for worker, request in zip(workers, requests, strict=False):
            worker.ask(request)
            pending.append((worker, request))
        while pending:
            worker, request = pending.popleft()
            found = worker.answers(request)
            following = next(requests, None)
            if following is not None:
                worker.ask(following)
                pending.append((worker, following))
            yield from found
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A worker process and the pipes to it."""

    def __init__(self, what: str, arguments: list[Any]) -> None:
        self.what, self.arguments = what, arguments
        self._start()

    def _start(self) -> None:
        package = str(Path(__file__).parents[2])
        search = os.pathsep.join(part for part in (package, os.environ.get("PYTHONPATH")) if part)
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": search},
        )

    def ask(self, paths: Sequence[str]) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # if the process has ended, `answers` notices
            self.process.stdin.write(json.dumps([self.what, paths, self.arguments]).encode() + b"\n")
            self.process.stdin.flush()

    def answers(self, paths: Sequence[str]) -> list[tuple[bytes, bool]]:
        try:
            return [self._answer() for _ in paths]
        except EOFError:
            return [self._ask_again(path) for path in paths]

    def _ask_again(self, path: str) -> tuple[bytes, bool]:
        """Repeat the request for one file in a new process, after a request crashed a process."""
        if self.process.returncode is not None:
            self.end()
            self._start()
        self.ask([path])
        try:
            return self._answer()
        except EOFError:
            return ENDED.encode(), False

    def _answer(self) -> tuple[bytes, bool]:
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        return (self._read(length), True) if length >= 0 else (self._read(-1 - length), False)

    def _read(self, count: int) -> bytes:
        assert self.process.stdout is not None
        content = self.process.stdout.read(count)
        if len(content) < count:
            self.process.wait()
            raise EOFError
        return content

    def end(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self.process.kill()
        self.process.wait()


def serve(requests: IO[bytes] | None = None, answers: IO[bytes] | None = None) -> None:
    """Run a worker: answer requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    requests, answers = requests or sys.stdin.buffer, answers or sys.stdout.buffer
    known: dict[str, Callable[..., bytes]] = {
        "decode": _decode,
        "decode with picture": _decode_with_picture,
        "inspect": lambda path, options: json.dumps(_header_as_list(*inspect_file(path, options))).encode(),
    }
    with silence_pillow():
        for line in requests:
            what, paths, (options, *arguments) = json.loads(line)
            chosen = DecodeOptions.of(options)
            parts: list[bytes] = []
            for path in paths:
                try:
                    content = known[what](Path(path), chosen, *arguments)
                    parts += [LENGTH.pack(len(content)), content]
                except Unreadable as error:
                    content = str(error).encode(errors="replace")
                    parts += [LENGTH.pack(-1 - len(content)), content]
            # One write for all answers: the worker continues with the next request while the parent reads this one.
            answers.write(b"".join(parts))
            answers.flush()


def _decode(path: Path, options: DecodeOptions, size: int, channels: int) -> bytes:
    return with_image(
        path, size, lambda image: crop_and_resize(image, size, channels).tobytes(), options, most_pixels=LARGE_PIXELS
    )


def _decode_with_picture(path: Path, options: DecodeOptions, size: int, channels: int, picture_size: int) -> bytes:
    def use(image: OneImage) -> bytes:
        square, picture = square_and_picture(image, size, channels, picture_size)
        facts = IS_WIDE_AND_SHORTER_SIDE.pack(picture.is_wide, picture.lines.shape[2])
        return b"".join((facts, square.tobytes(), picture.lines.tobytes()))

    return with_image(path, size, use, options, most_pixels=LARGE_PIXELS)


def _header_as_list(ends: int, header: Header | str) -> list[Any]:
    return [ends, header] if isinstance(header, str) else [ends, *vars(header).values(), None]
