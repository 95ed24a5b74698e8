r"""Characters that a JSON string can only have as ``\u`` escapes, which answers do not use.

llguidance leaves such a character out where a string or a pattern asks for it, so that ``"0"``
would pass for ``"0\u001f"``. In a set of characters beside others it merely is none of them.
"""

from __future__ import annotations

import re

_CODES = r"(?:0?[0-7bBeEfF]|1[0-9a-fA-F]|7[fF])"  # of U+0000 to U+001F but \b \t \n \f \r; U+007F
_PLAIN = r"\x00-\x07\x0b\x0e-\x1f\x7f"
_SPELLED = rf"x{_CODES}|u00{_CODES}|U000000{_CODES}|[xuU]\{{0*{_CODES}\}}"
_ONE = rf"(?:[{_PLAIN}]|\\(?:[{_PLAIN}av]|{_SPELLED}))"
_IN_TEXT = re.compile(f"[{_PLAIN}]")
_PART = re.compile(
    r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\(?:[pPxuU]\{[^}]*\}|x..|u.{4}|U.{8}|.)|.", re.DOTALL
)
_IN_EXPRESSION = re.compile(rf"{_ONE}|\[(?:{_ONE}(?:-{_ONE})?)+\]")


def unwritable_in_text(text: str) -> str | None:
    """The first character of ``text`` that no answer can have, as U+XXXX."""
    found = _IN_TEXT.search(text)
    return None if found is None else f"U+{ord(found[0]):04X}"


def unwritable_in_expression(expression: str) -> str | None:
    """The first part of a regular expression that asks for such a character and no other."""
    parts = (match[0] for match in _PART.finditer(expression))
    return next((ascii(part)[1:-1] for part in parts if _IN_EXPRESSION.fullmatch(part)), None)
