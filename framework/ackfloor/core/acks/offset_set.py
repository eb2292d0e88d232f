"""OffsetSet: many offsets of one partition in little memory.

Dead letters lie close together, and a job may remember a million of them. So offsets are
bits in pages of a kibibyte: a million neighbours take 125 kB, where a set of numbers takes 65 MB.
A page is made when the first offset in it is added, so offsets that lie far apart cost a kibibyte
each and never more.
"""

from __future__ import annotations

from typing import Final

_PAGE_BYTES: Final = 1_024
_PAGE_BITS: Final = 8 * _PAGE_BYTES


class OffsetSet:
    """A set of offsets (0 or more)."""

    __slots__ = ("_count", "_pages")

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self._count = 0

    def add(self, offset: int) -> None:
        """Put an offset in."""
        number, bit = divmod(offset, _PAGE_BITS)
        page = self._pages.setdefault(number, bytearray(_PAGE_BYTES))
        mask = 1 << (bit & 7)
        self._count += not page[bit >> 3] & mask
        page[bit >> 3] |= mask

    def discard(self, offset: int) -> None:
        """Take an offset out, if it is in."""
        if offset in self:
            number, bit = divmod(offset, _PAGE_BITS)
            self._pages[number][bit >> 3] &= ~(1 << (bit & 7))
            self._count -= 1

    def __contains__(self, offset: int) -> bool:
        number, bit = divmod(offset, _PAGE_BITS)
        page = self._pages.get(number)
        return page is not None and bool(page[bit >> 3] & (1 << (bit & 7)))

    def __len__(self) -> int:
        return self._count

    def first_missing(self, offset: int) -> int:
        """The lowest offset from this one on that is not in it."""
        number, bit = divmod(offset, _PAGE_BITS)
        while (page := self._pages.get(number)) is not None:
            bits = int.from_bytes(page, "little") >> bit
            bit += (~bits & (bits + 1)).bit_length() - 1
            if bit < _PAGE_BITS:
                break
            number, bit = number + 1, 0
        return number * _PAGE_BITS + bit

    def count_from(self, offset: int) -> int:
        """How many offsets in it are not below this one."""
        first, bit = divmod(offset, _PAGE_BITS)
        count = 0
        for number, page in self._pages.items():
            if number >= first:
                bits = int.from_bytes(page, "little")
                count += (bits >> bit if number == first else bits).bit_count()
        return count
