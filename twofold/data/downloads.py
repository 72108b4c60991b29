"""Find the standard files of named datasets below data_dir, or download, verify and unpack them.

The readers of CIFAR, MNIST and STL-10 call `find_or_fetch`. The registry uses a dataset's `Remote`s to recognise a
folder that contains its files.
"""

import gzip
import hashlib
import http.client
import os
import tarfile
import tempfile
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from twofold.errors import TwofoldError

TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Remote:
    """A file to download, and the files that it contains."""

    url: str
    md5: str
    files: tuple[str, ...]  # paths below data_dir; for a .tar.gz, these are also the names of its members


def find_or_fetch(
    set_name: str,
    data_dir: Path,
    remotes: tuple[Remote, ...],
    folders: tuple[str, ...],
    download: bool,
) -> dict[str, Path]:
    """Return the path of each file by its name, from the first folder below data_dir that contains it.

    Missing files are downloaded if `download` is true.
    """
    endings = ("",) if remotes[0].url.endswith(".tar.gz") else ("", ".gz")  # a single file may stay compressed

    def find(name: str) -> Path | None:
        places = (data_dir / folder / f"{name}{ending}" for folder in folders for ending in endings)
        return next((path for path in places if path.is_file()), None)

    missing = {remote: [name for name in remote.files if find(Path(name).name) is None] for remote in remotes}
    wanted = [remote for remote in remotes if missing[remote]]
    if wanted and not download:
        names = [Path(name).name for remote in wanted for name in missing[remote]]
        raise TwofoldError(
            f"{set_name} needs {', '.join(names)} in {data_dir / Path(wanted[0].files[0]).parent}; "
            f"set download=true, or download and unpack {' '.join(remote.url for remote in wanted)} there"
        )
    for remote in wanted:
        fetch(remote, data_dir)
    names = [Path(name).name for remote in remotes for name in remote.files]
    return {name: path for name in names if (path := find(name)) is not None}


def fetch(remote: Remote, data_dir: Path) -> None:
    """Download, verify and unpack the expected files. After a failure, no files are left behind."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=data_dir) as aside:
            archive = Path(aside, "archive")
            found = _download(remote.url, archive)
            if found != remote.md5:
                raise TwofoldError(
                    f"{remote.url} has the checksum {found}, expected {remote.md5}; the download was deleted, try again"
                )
            _unpack(remote, archive, Path(aside))
            for name in remote.files:
                target = data_dir / name
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(aside, Path(name).name), target)
    except (OSError, EOFError, zlib.error, http.client.HTTPException, tarfile.TarError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TwofoldError(f"cannot download {remote.url} to {data_dir}: {reason}") from error


def _download(url: str, target: Path) -> str:
    """Download a file and return its MD5, the checksum that is published with these datasets."""
    state = hashlib.md5(usedforsecurity=False)
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response, target.open("wb") as file:
        while block := response.read(2**20):
            state.update(block)
            file.write(block)
    return state.hexdigest()


def _unpack(remote: Remote, archive: Path, into: Path) -> None:
    if not remote.url.endswith(".tar.gz"):
        with gzip.open(archive) as content:
            _copy(content, into / Path(remote.files[0]).name)
        return
    with tarfile.open(archive) as tar:
        members = {member.name: member for member in tar if member.isfile()}
        for name in remote.files:
            if name not in members:
                raise TwofoldError(f"{remote.url} does not contain the file {name}")
            member = tar.extractfile(members[name])
            assert member is not None  # `members` contains only files
            _copy(member, into / Path(name).name)


def _copy(content: IO[bytes] | gzip.GzipFile, target: Path) -> None:
    with target.open("wb") as file:
        while block := content.read(2**20):
            file.write(block)
