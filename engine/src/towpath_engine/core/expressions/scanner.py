"""Finding the `${ ... }` in a string: an expression may itself hold braces, strings, comments."""

import re
from typing import Final

from towpath_engine.core.expressions.interface import ExpressionRefused


class Source(str):
    """The text between `${` and `}`; other parts of a scanned string are plain text."""

    __slots__ = ()


# Strings as CEL has them; in a raw one (r"...") a backslash is just a character.
_TOKEN: Final = re.compile(
    r"(?P<comment>//[^\n]*)"
    r"|(?P<raw>[bB]?[rR][bB]?(?:'''.*?'''|\"\"\".*?\"\"\"|'[^'\n]*'|\"[^\"\n]*\"))"
    r"|(?P<string>'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\""
    r"|'(?:\\.|[^\\'\n])*'|\"(?:\\.|[^\\\"\n])*\")"
    r"|(?P<backtick>`[^`\n]*`)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<open>\{)|(?P<close>\})|(?P<unterminated>['\"])",
    re.DOTALL,
)


def scan(text: str) -> list[str | Source]:
    """The parts of a string: text, with `$${` already turned into `${`, and Sources.

    Raises ExpressionRefused for a `${` that is never closed.
    """
    parts: list[str | Source] = []
    literal: list[str] = []
    at = 0
    while (dollar := text.find("${", at)) >= 0:
        if dollar > at and text[dollar - 1] == "$":
            literal.append(text[at : dollar - 1] + "${")
            at = dollar + 2
            continue
        literal.append(text[at:dollar])
        end = _closing_brace(text, dollar + 2)
        if plain := "".join(literal):
            parts.append(plain)
        literal = []
        parts.append(Source(text[dollar + 2 : end]))
        at = end + 1
    if plain := "".join([*literal, text[at:]]):
        parts.append(plain)
    return parts


def _closing_brace(text: str, start: int) -> int:
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if token.lastgroup == "open":
            depth += 1
        elif token.lastgroup == "close":
            if depth == 0:
                return token.start()
            depth -= 1
        elif token.lastgroup == "unterminated":
            # No string can start here, so the checker will refuse whatever this is cut to.
            if (end := text.find("}", token.end())) >= 0:
                return end
            break
    reason = "a `${` is never closed; write `$${` for a literal `${`"
    raise ExpressionRefused(position=start - 2, reason=reason)
