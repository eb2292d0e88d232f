"""Text from anywhere, made fit to be printed where people read it.

What a header, a payload or an exception says was written by others. A terminal obeys some of it:
it clears lines, changes titles, hides what was there.
"""

from __future__ import annotations


def plain(text: str) -> str:
    """Text with nothing in it that a terminal would obey; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else f"\\x{ord(each):02x}" for each in text
    )
