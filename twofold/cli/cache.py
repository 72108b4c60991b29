"""`twofold cache`: the size of the cache of decoded images and folder indexes, and how to clear it."""

import time
from typing import Annotated

import typer

from twofold.cli.common import USE, command, display_of


@command(USE, examples="twofold cache --clear")
def cache(
    clear: Annotated[
        bool, typer.Option("--clear", help="Empty the cache. Twofold fills it again when needed.")
    ] = False,
) -> None:
    """Show or clear the cache of decoded images and folder indexes."""
    from twofold.data import cache as image_cache
    from twofold.files import cache_folder
    from twofold.text import plural

    display = display_of(False)
    entries, indexes = image_cache.cached_sets(), image_cache.folder_indexes()
    incomplete = image_cache.incomplete_files()
    index_bytes = sum(index.stat().st_size for index in indexes)
    if clear:
        for entry in entries:
            image_cache.remove_set(entry)
        for index in indexes:
            index.unlink(missing_ok=True)
        incomplete = image_cache.remove_incomplete(incomplete)
    taken = sum(entry.bytes for entry in entries)
    verb = "removed from" if clear else "in"
    display.say(f"{plural(len(entries), 'decoded set')}, {taken / 1e9:.2f} GB, {verb} {cache_folder()} (TWOFOLD_CACHE)")
    noun = "index" if len(indexes) == 1 else "indexes"
    display.say(f"{len(indexes):,} {noun} of folders and lists, {index_bytes / 1e6:.1f} MB, {verb} the same folder")
    if incomplete:
        noun = plural(len(incomplete), "incomplete file")
        display.say(
            f"{noun} of stopped or running processes, {sum(incomplete.values()) / 1e6:.1f} MB, {verb} the same folder"
        )
    limit = image_cache.size_limit()
    display.say(f"limit {limit / 1e9:.0f} GB (TWOFOLD_CACHE_GB); least recently used entries are removed first")
    for entry in [] if clear else reversed(entries):
        used = time.strftime("%Y-%m-%d", time.localtime(entry.used))
        part = entry.key.partition("-")[2].rpartition("-")[0]  # such as train or test
        content = f"{entry.source} ({part})" if entry.source else entry.key
        display.say(f"  {entry.bytes / 1e6:10,.1f} MB  used {used}  {content}")
