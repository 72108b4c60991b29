"""Plain-text symbols such as z_vn or d_ij², written as mathematics."""

import re

from generators.markdown import outside_code

# A single letter with an optional bar, index and exponent. Not: articles, parts of words such as W-MSE, and "i.e.".
SYMBOL = re.compile(r"(?<![\w\-–.'’])(?!(?:a|A|I)\b)([A-Za-zα-ωΑ-Ω])(\u0304)?(?:_(\w+?))?([²³⁺⁻ᵀ]?)(?![\w\-–]|\.\w)")
EXPONENTS = {"²": "^2", "³": "^3", "⁺": "^+", "⁻": "^-", "ᵀ": r"^\top", "": ""}


def with_mathematics(text: str) -> str:
    """Return the text with its symbols between dollar signs. Code between backticks stays as it is."""
    return outside_code(lambda part: SYMBOL.sub(as_latex, part), text)


def as_latex(found: re.Match[str]) -> str:
    letter, bar, index, exponent = found.groups()
    symbol = rf"\bar{{{letter}}}" if bar else letter
    return f"${symbol}{f'_{{{index}}}' if index else ''}{EXPONENTS[exponent]}$"
