"""Target: a parser, the property that holds for whatever it is given, and inputs worth trying."""

from __future__ import annotations

import atexit
import base64
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

CORPUS = Path(__file__).parent / "corpus"
#: Between the parts of an input that has parts, and between the halves of a part.
PART, HALF = b"\x1e", b"\x1f"


@dataclass(frozen=True, slots=True)
class Target:
    """One parser.

    Attributes:
        check: fails where the property does not hold, in whatever way.
        made: well-formed inputs.
        words: what is put into others: names and numbers that the parser knows.
    """

    name: str
    check: Callable[[bytes], None]
    made: st.SearchStrategy[bytes]
    words: Sequence[bytes] = (b"0",)

    def corpus(self) -> list[bytes]:
        """The inputs that are kept."""
        path = self._path
        lines = path.read_text().splitlines() if path.exists() else []
        return [base64.b64decode(line) for line in lines]

    def keep(self, inputs: Sequence[bytes]) -> None:
        """Add to them, shortest first."""
        found = sorted({*self.corpus(), *inputs}, key=lambda data: (len(data), data))
        lines = [base64.b64encode(data).decode() + "\n" for data in found]
        self._path.write_text("".join(lines))

    def inputs(self, corpus: Sequence[bytes]) -> st.SearchStrategy[bytes]:
        """Anything: well-formed, changed, or neither."""
        changed = st.builds(
            self.changed,
            st.sampled_from(corpus or [b""]) | self.made,
            st.sampled_from(corpus or [b""]),
            st.integers(0, 2**32),
        )
        return self.made | changed | st.binary(max_size=60)

    def changed(self, data: bytes, other: bytes, seed: int) -> bytes:
        """An input with a few changes: flipped, cut, doubled, crossed, a word put in."""
        pick = random.Random(seed)
        for _ in range(pick.randint(1, 4)):
            at = pick.randint(0, len(data))
            end = min(len(data), at + pick.choice((1, 1, 2, 4, 16, 64)))
            match pick.randrange(6):
                case 0 if at < len(data):
                    flipped = bytes([data[at] ^ 1 << pick.randrange(8)])
                    data = data[:at] + flipped + data[at + 1 :]
                case 1:
                    data = data[:at] + data[end:]
                case 2:
                    data = data[:end] + data[at:end] * pick.choice((1, 2, 100)) + data[end:]
                case 3:
                    data = data[:at] + other[pick.randint(0, len(other)) :]
                case 4:
                    data = data[:at] + pick.choice(self.words) + data[end:]
                case _:
                    data = data[:at] + pick.choice(self.words) + data[at:]
        return data[:8_000]

    @property
    def _path(self) -> Path:
        return CORPUS / f"{self.name}.txt"


def scratch(name: str) -> Path:
    """Where a file of this name may be written; it goes when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="ackfloor-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / name


def halves(data: bytes) -> list[tuple[bytes, bytes | None]]:
    """An input as pairs; the second half is None where there is none."""
    found: list[tuple[bytes, bytes | None]] = []
    for part in data.split(PART):
        first, middle, second = part.partition(HALF)
        found.append((first, second if middle else None))
    return found


def joined(pairs: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """Pairs as an input."""
    return PART.join(first if second is None else first + HALF + second for first, second in pairs)


def text_of(data: bytes) -> str:
    """Bytes as text, any bytes: what is no UTF-8 is left out."""
    return data.decode("utf-8", "ignore")
