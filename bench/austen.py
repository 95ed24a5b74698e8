"""Writes a novel of Jane Austen (public domain) to stdout, as a text to evaluate models on.

apt-get download r-cran-janeaustenr && dpkg -x r-cran-janeaustenr_*.deb austen
python bench/austen.py austen EMMA > emma.txt

R keeps each novel as a zlib stream behind its length: a vector of strings, one a line.
"""

from __future__ import annotations

import argparse
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

DATA = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
STRING_VECTOR, STRING = 16, 9


def objects(data: bytes) -> Iterator[bytes]:
    """The serialized objects of a lazy-load database."""
    while data:
        stream = zlib.decompressobj()
        yield stream.decompress(data[4:])
        data = stream.unused_data


def lines(serialized: bytes) -> list[str]:
    """The strings of a character vector (R Internals, "Serialization Formats")."""
    version = struct.unpack_from(">2xi", serialized)[0]
    place = 14
    if version == 3:  # the name of an encoding follows
        place += 4 + struct.unpack_from(">i", serialized, place)[0]
    kind, count = struct.unpack_from(">ii", serialized, place)
    if serialized[:2] != b"X\n" or kind & 255 != STRING_VECTOR:
        raise SystemExit("not a vector of strings")
    place += 8
    found = []
    for _ in range(count):
        kind, length = struct.unpack_from(">ii", serialized, place)
        assert kind & 255 == STRING
        found.append(serialized[place + 8 : place + 8 + length].decode())
        place += 8 + length
    return found


def main() -> None:
    """Looks for the novel whose first line was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the package was unpacked")
    parser.add_argument("title", help="EMMA, PERSUASION, ...")
    arguments = parser.parse_args()
    titles = []
    for each in objects((arguments.folder / DATA).read_bytes()):
        novel = lines(each)
        titles.append(novel[0])
        if novel[0] == arguments.title:
            sys.stdout.write("\n".join(novel) + "\n")
            return
    raise SystemExit(f"no novel begins with {arguments.title!r}; there are {titles}")


if __name__ == "__main__":
    main()
