"""Small files in the layouts of the standard datasets."""

import struct

import numpy as np

RNG = np.random.default_rng(0)
CLASSES = ["airplane", "automobile", "bird"]


def cifar10_contents(per_batch: int = 4) -> dict[str, dict[str, object]]:
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    contents: dict[str, dict[str, object]] = {
        name: {
            "batch_label": name,
            "labels": RNG.integers(0, 3, per_batch).tolist(),
            "data": RNG.integers(0, 256, (per_batch, 3072), dtype=np.uint8),
        }
        for name in names
    }
    return {**contents, "batches.meta": {"label_names": CLASSES, "num_vis": 3072}}


def cifar100_contents() -> dict[str, dict[str, object]]:
    """There are as many coarse labels as fine ones, with different values."""
    contents: dict[str, dict[str, object]] = {
        name: {
            "filenames": [f"{number}.png" for number in range(count)],
            "batch_label": f"{name} batch",
            "fine_labels": [number % 3 for number in range(count)],
            "coarse_labels": [number % 2 for number in range(count)],
            "data": RNG.integers(0, 256, (count, 3072), dtype=np.uint8),
        }
        for name, count in (("train", 7), ("test", 4))
    }
    return {**contents, "meta": {"fine_label_names": ["apple", "beaver", "cup"], "coarse_label_names": ["a", "b"]}}


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def mnist_contents() -> dict[str, bytes]:
    return {
        "train-images-idx3-ubyte": idx(RNG.integers(0, 256, (6, 28, 28), dtype=np.uint8)),
        "train-labels-idx1-ubyte": idx(np.array([5, 0, 4, 1, 9, 2], np.uint8)),
        "t10k-images-idx3-ubyte": idx(RNG.integers(0, 256, (3, 28, 28), dtype=np.uint8)),
        "t10k-labels-idx1-ubyte": idx(np.array([7, 2, 1], np.uint8)),
    }


def python2_pickle(record: dict[str, object]) -> bytes:
    """The opcodes that Python 2 wrote into the original files: byte strings, and arrays from numpy.core."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    def put(value: object) -> bytes:
        if isinstance(value, str):
            return text(value.encode())
        if isinstance(value, int):
            return integer(value)
        if isinstance(value, list):
            return b"](" + b"".join(map(put, value)) + b"e"
        assert isinstance(value, np.ndarray)
        empty = (
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + integer(0) + b"\x85" + text(b"b") + b"\x87R"
        )
        kind = b"cnumpy\ndtype\n" + text(b"u1") + integer(0) + integer(1) + b"\x87R"
        state = b"(" + integer(3) + text(b"|") + b"NNN" + integer(-1) + integer(-1) + integer(0) + b"tb"
        shape = integer(value.shape[0]) + integer(value.shape[1]) + b"\x86"
        return empty + b"(" + integer(1) + shape + kind + state + b"\x89" + text(value.tobytes()) + b"tb"

    return b"\x80\x02}(" + b"".join(put(key) + put(value) for key, value in record.items()) + b"u."
