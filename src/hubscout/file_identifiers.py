"""Names of models that were read from a file, which open data only."""

from __future__ import annotations


class IdentifierFromFile(str):
    """An identifier that was read from a file: the same string, and which file it stands in.

    What is read from a file is data. `hubscout.hubs.load` opens no code for such a name unless it is told to, however
    far the name was carried from the file.
    """

    origin: str

    def __new__(cls, text: str, origin: str = "") -> IdentifierFromFile:
        made = super().__new__(cls, text)
        made.origin = origin
        return made
