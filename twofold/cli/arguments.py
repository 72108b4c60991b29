"""Which words of a command are data and which are settings, and what was meant by others."""

from twofold.errors import TwofoldError


def split_words(words: list[str]) -> tuple[str | None, list[str]]:
    """Settings are KEY=VALUE; the one other word is the data."""
    settings = [word for word in words if word.partition("=")[0].replace(".", "_").isidentifier() and "=" in word]
    others = [word for word in words if word not in settings]
    if len(others) > 1:
        hint = next(filter(None, (setting_for(word, words) for word in others)), "")
        raise TwofoldError(f"one set of images at a time, not {len(others)}: {', '.join(others)}{hint}")
    return (others[0] if others else None), settings


def setting_for(word: str, words: list[str]) -> str:
    """How to write what was meant as a setting, as `--batch-size 64` and `epochs 3` are; nothing for other words."""
    from twofold.config import RUN_KEYS
    from twofold.methods import CATALOG, schema

    name, _, value = word.lstrip("-").partition("=")
    name = name.replace("-", "_")
    if name not in RUN_KEYS and not any(name in schema(method) for method in CATALOG):
        return ""
    following = words[words.index(word) + 1 :]
    return f"; did you mean {name}={value or (following[0] if following else 'VALUE')}?"
