r"""Convert a small subset of LaTeX to MathML, which browsers draw without a network or a script.

Supported: letters, digits, operators, ``^ _ { }``, ``\frac \sqrt \hat \bar``, upright words in
``\mathrm{} \text{} \operatorname{}``, the spaces ``\, \quad`` and symbols by their HTML names or
`SYMBOLS`. Markdown keeps the LaTeX, so every formula is written once.

The library latex2mathml 3.81, which the documentation is built with, copies unknown commands and
unbalanced braces into the page, and a ``<`` in a text as markup; it draws a missing argument as
nothing, ``\mathrm{sign}`` as four variables and ``\operatorname`` as an empty operator. Here,
unsupported input is refused.
"""

from __future__ import annotations

import re
from html import escape
from html.entities import html5

#: Commands whose name in HTML is different or missing.
SYMBOLS = {"varepsilon": "ε", "cdot": "·", "partial": "∂", "log": "log", "min": "min", "max": "max"}
_TOKEN = re.compile(r"\\[A-Za-z]+|\\,|\s+|\d+(?:\.\d+)?|.", re.S)


def mathml(latex: str, *, block: bool = True) -> str:
    """Return one ``<math>`` element, displayed as a block of its own if ``block``; raise
    `ValueError` for a command outside the subset or unbalanced braces, and `IndexError` for a
    missing argument as in ``x^``."""
    tokens = [t for t in _TOKEN.findall(latex) if not t.isspace()]
    body = _row(tokens)
    if tokens:
        raise ValueError(f"unbalanced braces in {latex!r}")
    display = ' display="block"' if block else ""
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML"{display}>{body}</math>'


def _row(tokens: list[str]) -> str:
    """Convert tokens up to a closing brace, which stays in the list, or to the end to one
    ``<mrow>``; converted tokens are removed from the list."""
    parts: list[str] = []
    while tokens and tokens[0] != "}":
        parts.append(_scripted(tokens))
    return f"<mrow>{''.join(parts)}</mrow>"


def _scripted(tokens: list[str]) -> str:
    """Convert the next atom with its subscript and superscript to MathML; converted tokens are
    removed from the list."""
    base = _atom(tokens)
    scripts: dict[str, str] = {}
    while tokens and tokens[0] in "^_" and tokens[0] not in scripts:
        mark = tokens.pop(0)
        scripts[mark] = _atom(tokens)
    tag = {"": "", "_": "msub", "^": "msup", "^_": "msubsup"}["".join(sorted(scripts))]
    both = base + scripts.get("_", "") + scripts.get("^", "")
    return f"<{tag}>{both}</{tag}>" if tag else base


def _atom(tokens: list[str]) -> str:
    """Convert the next token, braced group or command to MathML and remove it from the list. Raise
    `ValueError` for an unclosed brace."""
    token = tokens.pop(0)
    if token == "{":
        inner = _row(tokens)
        if not tokens:
            raise ValueError("unbalanced braces")
        tokens.pop(0)
        return inner
    if token.startswith("\\"):
        return _command(token[1:], tokens)
    if token[0].isdigit():
        return f"<mn>{token}</mn>"
    if token.isalpha():
        return f"<mi>{token}</mi>"
    return f"<mo>{escape(token.replace('-', '−'))}</mo>"


def _command(name: str, tokens: list[str]) -> str:
    r"""Convert the LaTeX command ``\NAME`` to MathML, with its arguments from ``tokens``, which are
    removed. Raise `ValueError` for an unknown command."""
    if name == "frac":
        return f"<mfrac>{_atom(tokens)}{_atom(tokens)}</mfrac>"
    if name == "sqrt":
        return f"<msqrt>{_atom(tokens)}</msqrt>"
    if name in ("hat", "bar"):
        mark = "^" if name == "hat" else "¯"
        return f'<mover accent="true">{_atom(tokens)}<mo>{mark}</mo></mover>'
    if name in ("mathrm", "text", "operatorname") and "}" in tokens:
        word = "".join(tokens[: tokens.index("}")]).lstrip("{")
        del tokens[: tokens.index("}") + 1]
        return f'<mi mathvariant="normal">{escape(word)}</mi>'
    if name == ",":
        return '<mspace width="0.17em"></mspace>'
    if name == "quad":
        return '<mspace width="1.6em"></mspace>'
    symbol = SYMBOLS.get(name) or html5.get(f"{name};")
    if symbol is None:
        raise ValueError(f"no MathML for \\{name}")
    tag = "mi" if symbol.isalpha() or symbol == "∂" else "mo"
    return f"<{tag}>{symbol}</{tag}>"
