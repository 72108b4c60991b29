"""Which arguments of a command are the data and which are settings, and hints for misspelt ones."""

from twofold.errors import TwofoldError


def split_words(words: list[str]) -> tuple[str | None, list[str]]:
    """Split arguments into the data and the settings (KEY=VALUE). At most one argument is the data."""
    settings = [word for word in words if word.partition("=")[0].replace(".", "_").isidentifier() and "=" in word]
    others = [word for word in words if word not in settings]
    if len(others) > 1:
        hint = next(filter(None, (setting_for(word, words) for word in others)), "")
        raise TwofoldError(f"give one DATA, not {len(others)}: {', '.join(others)}{hint}")
    return (others[0] if others else None), settings


def setting_for(word: str, words: list[str]) -> str:
    """Return a hint for a setting in another notation, such as `--batch-size 64` or `epochs 3`, otherwise ''."""
    from twofold.config import RUN_KEYS
    from twofold.methods import CATALOG, schema

    name, _, value = word.lstrip("-").partition("=")
    name = name.replace("-", "_")
    if name not in RUN_KEYS and not any(name in schema(method) for method in CATALOG):
        return ""
    following = words[words.index(word) + 1 :]
    return f"; did you mean {name}={value or (following[0] if following else 'VALUE')}?"
