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
