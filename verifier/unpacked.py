"""The bundle in an archive as evidence: names below one folder of it, bytes from the spool."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from verifier.archive import Member, Unpacked
from verifier.evidence import EvidenceError, TooLargeError
from verifier.store.listing import Entry


class UnpackedEvidence:
    """The bundle in an archive, below one folder of it (`verifier.evidence.Evidence`)."""

    def __init__(self, unpacked: Unpacked, prefix: str) -> None:
        self._unpacked = unpacked
        below = sorted(name for name in (*unpacked.members, *unpacked.odd) if name.startswith(prefix))
        entries: dict[str, Entry] = {}
        for name in below:
            member = unpacked.members.get(name)
            entries[name.removeprefix(prefix)] = (
                Entry(kind="file", size=member.size)
                if member is not None
                else Entry(kind=unpacked.odd[name], size=0)
            )
        self._entries = MappingProxyType(entries)
        self._prefix = prefix

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Every name of the bundle, sorted."""
        return self._entries

    @property
    def overfull(self) -> bool:
        """Never: an archive with too many entries is a finding of its own."""
        return False

    def digest(self, path: str) -> str:
        """The sha256 of a file, taken as it was unpacked. Raises EvidenceError."""
        return self._member(path).sha256

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file's bytes, piece by piece. Raises EvidenceError."""
        yield from self._unpacked.chunks(self._member(path))

    def read(self, path: str, limit: int) -> bytes:
        """A file's bytes. Raises EvidenceError, also when there are more than `limit`."""
        member = self._member(path)
        if member.size > limit:
            raise TooLargeError(f"more than {limit} bytes")
        return b"".join(self._unpacked.chunks(member))

    def _member(self, path: str) -> Member:
        try:
            return self._unpacked.members[self._prefix + path]
        except KeyError:
            raise EvidenceError("No such file or directory") from None
