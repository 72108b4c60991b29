"""Format numbers, sizes, durations and names for messages."""

import unicodedata

BIDIRECTIONAL = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # change the order of characters


def printable(text: str) -> str:
    """Escape the characters of a name that could control a terminal: `\\x1b` instead of the character itself.

    Line breaks and tabs stay. Half characters of names that are not UTF-8 are escaped, because they cannot be printed.
    """
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    is_control = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in BIDIRECTIONAL
    return character.encode("unicode_escape").decode() if is_control and character not in "\n\t" else character


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def bytes_in_words(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB" if count >= 1e6 else "under 1 MB"


def rough_duration(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(round(seconds), 1)} seconds"
    return f"about {round(seconds / 60)} minutes" if seconds < 5400 else f"about {seconds / 3600:.1f} hours"


def duration(seconds: float) -> str:
    """Format a duration, for example as 52 s, 3 min 20 s or 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min" + (f" {rounded % 60} s" if rounded % 60 else "")
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h" + (f" {minutes % 60} min" if minutes % 60 else "")
