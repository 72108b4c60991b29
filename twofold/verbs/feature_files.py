"""Files of features: .npz, .csv and .parquet, with index, split, label and file name of each image.

`embed` writes them block by block. `diagnose` reads them, and also arrays of other programs (.npy, .npz). In shapes, n
is the number of images and K the dimension of the features.
"""

import csv
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from torch import Tensor

from twofold.array_files import names_of, read_array, read_member
from twofold.data.store import readonly_tensor
from twofold.errors import TwofoldError, how_to_install
from twofold.files import refuse_unwritable

# Names of the array in a .npz file; the first one that exists is read.
ARRAY_NAMES = ("features", "embeddings", "z", "x", "arr_0")
ROWS = 4096  # rows of a column that are converted to an array at a time


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Columns that describe n images. A column that is None is not written."""

    index: np.ndarray  # int64 [n], number of the image in the source
    held_out: np.ndarray  # bool [n]: in the test split
    labels: np.ndarray | None  # int64 [n], −1 where unknown
    files: Sequence[str] | None  # "" if there is none
    classes: tuple[str, ...] | None

    def __len__(self) -> int:
        return len(self.index)

    def row(self, number: int) -> dict[str, Any]:
        """Return one image as a dict of column names and values."""
        known: dict[str, Any] = {} if self.files is None else {"file": self.files[number]}
        known |= {"index": int(self.index[number]), "split": "test" if self.held_out[number] else "train"}
        if self.labels is not None:
            label = int(self.labels[number])
            known |= {"label": label, "class": self.classes[label] if self.classes and label >= 0 else ""}
        return known


Blocks = Iterator[np.ndarray]  # float32 [rows, K], n rows in all
Writer = Callable[[Path, Catalogue, Blocks], None]


def write_npz(path: Path, images: Catalogue, blocks: Blocks) -> None:
    """Write the same file as `numpy.savez`, without holding a complete column of features or names in memory."""
    first = next(blocks)
    count = len(images)
    splits = (np.where(part, "test", "train") for part in _parts(images.held_out))
    columns: dict[str, tuple[np.dtype, tuple[int, ...], Iterable[np.ndarray]]] = {
        "features": (np.dtype(np.float32), (count, first.shape[1]), chain([first], blocks)),
        "index": (images.index.dtype, (count,), [images.index]),
        "split": (np.dtype("<U5"), (count,), splits),
    }
    if images.labels is not None:
        columns["labels"] = (images.labels.dtype, (count,), [images.labels])
    if images.classes is not None:
        names = np.array(images.classes)
        columns["classes"] = (names.dtype, names.shape, [names])
    if images.files is not None:
        text = np.dtype(f"<U{max(1, max(map(len, images.files), default=1))}")
        columns["files"] = (text, (count,), (np.array(part, text) for part in _parts(images.files)))
    with zipfile.ZipFile(path, "w") as archive:
        for name, (dtype, shape, parts) in columns.items():
            # The archive does not know the size of the member in advance, so it must allow for more than 4 GiB.
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _write_header(member, dtype, shape)
                for part in parts:
                    member.write(np.ascontiguousarray(part, dtype).tobytes())


def write_csv(path: Path, images: Catalogue, blocks: Blocks) -> None:
    """Write a line for each image: its description, then the features f0, f1, … with all digits of a float32."""
    # A file name that is not UTF-8 would make the table unreadable for other programs.
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file)
        number = 0
        for block in blocks:
            if number == 0:
                writer.writerow([*images.row(0), *(f"f{column}" for column in range(block.shape[1]))])
            for values in block.tolist():
                writer.writerow([*images.row(number).values(), *(f"{value:.9g}" for value in values)])
                number += 1


def write_parquet(path: Path, images: Catalogue, blocks: Blocks) -> None:
    """Write a row group for each block. The features are one column with lists of K numbers."""
    arrow, parquet = _pyarrow()
    writer = None
    done = 0
    try:
        for block in blocks:
            rows = [images.row(number) for number in range(done, done + len(block))]
            columns = {name: arrow.array([_valid(row[name]) for row in rows]) for name in rows[0]}
            flat = arrow.array(np.ascontiguousarray(block, np.float32).ravel())
            columns["features"] = arrow.FixedSizeListArray.from_arrays(flat, block.shape[1])
            table = arrow.table(columns)
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
            done += len(block)
    finally:
        if writer is not None:
            writer.close()


WRITERS: dict[str, Writer] = {".npz": write_npz, ".parquet": write_parquet, ".csv": write_csv}


def writer_for(out: Path) -> Writer:
    """Return the function that writes the file. Refuse a file that cannot be written, before any work is done."""
    if out.suffix not in WRITERS or not out.resolve().parent.is_dir() or out.is_dir():
        raise TwofoldError(f"--out {out}: give a .npz, .parquet or .csv file in a folder that exists")
    refuse_unwritable(out)
    if out.suffix == ".parquet":
        _pyarrow()
    return WRITERS[out.suffix]


def read_csv(path: Path) -> np.ndarray:
    """Return the features `[n, K]` of a table that `write_csv` wrote. Raise ValueError if a line is incomplete."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file)
        heading = next(reader, [])
        columns = [place for place, name in enumerate(heading) if re.fullmatch(r"f\d+", name)]
        if not columns:
            raise ValueError("there are no columns f0, f1, …, such as twofold embed writes")
        rows = []
        for row in reader:
            if len(row) != len(heading):
                raise ValueError(f"line {reader.line_num} has {len(row)} cells, but the header has {len(heading)}")
            rows.append(np.array([row[place] for place in columns], np.float32))
    return np.array(rows, np.float32).reshape(-1, len(columns))


def read_parquet(path: Path) -> np.ndarray:
    """Return the features `[n, K]` of a table that `write_parquet` wrote."""
    arrow, parquet = _pyarrow()
    try:
        file = parquet.ParquetFile(path)
        kinds = {column.name: column.type for column in file.schema_arrow}
        if not arrow.types.is_fixed_size_list(kinds.get("features", arrow.null())):
            raise ValueError("there is no column 'features' with lists of one length, such as twofold embed writes")
        column = file.read(columns=["features"])["features"].combine_chunks()
        return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, kinds["features"].list_size)
    except arrow.ArrowException as error:
        raise ValueError(str(error)) from None


def read_array_file(path: Path) -> np.ndarray:
    """Return the array of a .npy file (memory-mapped) or of a .npz file."""
    if (content := read_array(path)) is not None:
        return content
    names = names_of(path)
    key = next((key for key in ARRAY_NAMES if key in names), None)
    if key is None:
        raise TwofoldError(
            f"{path} contains no embeddings but {', '.join(names) or 'nothing'}: "
            f"name the array one of {', '.join(ARRAY_NAMES)}"
        )
    return read_member(path, key)


READERS: dict[str, Callable[[Path], np.ndarray]] = {
    ".npy": read_array_file,
    ".npz": read_array_file,
    ".csv": read_csv,
    ".parquet": read_parquet,
}


def read_features(path: Path) -> Tensor:
    """Read features `[n, K]` from a file. A .npy file is memory-mapped, not loaded."""
    try:
        content = READERS[path.suffix](path)
    except (OSError, ValueError, OverflowError, csv.Error) as error:
        raise TwofoldError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    return as_embeddings(str(path), content)


def read_names(path: Path, rows: int) -> list[str] | None:
    """Return the file names of the rows of a file of features, or None if it has none or not as many."""
    names: list[str] = []
    try:
        if path.suffix == ".npz":
            names = read_member(path, "files").tolist() if "files" in names_of(path) else []
        elif path.suffix == ".csv":
            with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
                names = [row["file"] for row in csv.DictReader(file) if "file" in row]
        elif path.suffix == ".parquet":
            parquet = _pyarrow()[1].ParquetFile(path)
            has_names = "file" in parquet.schema_arrow.names
            names = parquet.read(columns=["file"])["file"].to_pylist() if has_names else []
    except (OSError, ValueError, OverflowError, csv.Error):
        return None
    return names if len(names) == rows and all(isinstance(name, str) and name for name in names) else None


def as_embeddings(where: str, content: np.ndarray) -> Tensor:
    """Return the array as a tensor without a copy. Refuse an array that cannot be features `[rows, dimensions]`."""
    is_float = content.dtype.kind == "f" and content.dtype.itemsize <= 8  # PyTorch has no longer ones
    if content.ndim != 2 or not is_float or len(content) < 2 or content.shape[1] < 1:
        shape = "x".join(map(str, content.shape))
        raise TwofoldError(
            f"{where} contains {content.dtype} of shape {shape}: "
            "embeddings must be floats of shape [rows, dimensions] with at least two rows"
        )
    if not content.dtype.isnative:
        content = content.astype(content.dtype.newbyteorder("="))
    return readonly_tensor(content)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise TwofoldError(
            f".parquet needs pyarrow, which cannot be imported ({error}): "
            f"{how_to_install('parquet')}, or choose .npz or .csv"
        ) from None
    return pyarrow, parquet


def _valid(value: Any) -> Any:
    """Escape bytes that are not UTF-8 in file names, because Parquet allows UTF-8 only."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _parts(column: Any) -> Iterator[Any]:
    return (column[start : start + ROWS] for start in range(0, len(column), ROWS))


def _write_header(member: IO[bytes], dtype: np.dtype, shape: tuple[int, ...]) -> None:
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(member, description)
