"""`twofold cache`: what decoded images and indexes of folders take, and how to be rid of them."""

import time
from typing import Annotated

import typer

from twofold.cli.common import app, display_of


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all of it; it is made again when needed.")] = False,
) -> None:
    """Show what is kept for the next start, decoded images and indexes of folders, and the room it takes."""
    from twofold.data import cache as image_cache
    from twofold.files import cache_folder

    display = display_of(False)
    entries, indexes = image_cache.cached_sets(), image_cache.folder_indexes()
    index_bytes = sum(index.stat().st_size for index in indexes)
    if clear:
        for entry in entries:
            image_cache.remove_set(entry)
        for index in indexes:
            index.unlink(missing_ok=True)
    taken = sum(entry.bytes for entry in entries)
    verb = "removed from" if clear else "in"
    display.say(f"{len(entries)} decoded sets, {taken / 1e9:.2f} GB, {verb} {cache_folder()} (TWOFOLD_CACHE)")
    display.say(f"{len(indexes)} indexes of folders and lists, {index_bytes / 1e6:.1f} MB, {verb} the same place")
    limit = image_cache.size_limit()
    display.say(f"limit {limit / 1e9:.0f} GB (TWOFOLD_CACHE_GB); the longest unused make room for new ones")
    for entry in [] if clear else reversed(entries):
        used = time.strftime("%Y-%m-%d", time.localtime(entry.used))
        display.say(f"  {entry.bytes / 1e6:10,.1f} MB  used {used}  {entry.key}")
