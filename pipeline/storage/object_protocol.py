"""The interface of local folders and object stores: objects by name, written whole."""

import math
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class Head(NamedTuple):
    """Bytes of an object, and when it was written, in seconds by the store's own clock."""

    size: int
    modified: float


class Objects(Protocol):
    """Bytes by name under a root URL; names use '/'."""

    url: str
    n_together: int = 1
    """Objects, ranges or slices of arrays that are read or created at one time."""

    def put(self, name: str, data: bytes) -> None:
        """Write the whole object, atomically."""

    def create(self, name: str, data: bytes) -> bool:
        """Write the object if it does not exist; False if it exists."""

    def get(self, name: str) -> bytes | None:
        """The object's bytes, or None if it does not exist."""

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        """`length` bytes from byte `start` on, fewer if the object ends before; None if it does not exist."""

    def names(self, prefix: str) -> list[str]:
        """Names of all objects below a folder, sorted."""

    def folders(self, prefix: str) -> list[str]:
        """Names of the direct subfolders of a folder, sorted."""

    def copy(self, names: Sequence[str], source: "Objects") -> None:
        """Copy objects of another root under the same names, replacing existing ones. No data passes through here.

        Local copies may be hard links: a write replaces a name and never changes bytes in place.
        """

    def head(self, name: str) -> Head | None:
        """Size and time of the object; None if it does not exist."""

    def exists(self, name: str) -> bool:
        return self.head(name) is not None

    def size(self, name: str) -> int:
        """Bytes of the object, 0 if it does not exist."""
        return 0 if (head := self.head(name)) is None else head.size

    def delete(self, name: str) -> None:
        """Remove an object, or everything in a folder. Does nothing if neither exists."""

    def delete_objects(self, names: Sequence[str]) -> None:
        """Remove objects, not folders. Does nothing for those that do not exist."""
        for name in names:
            self.delete(name)

    def delete_empty_folders(self) -> None:
        """Remove the root and the folders in it that hold nothing; what another process has written stays.

        Does nothing where there are no folders.
        """
        return None

    def place(self) -> "str | ObjectStore | None":
        """The root for zarr: the folder (str), or obstore's store."""

    def delete_partial_files(self) -> int:
        """Remove partial files of killed writers; returns how many. 0 where writes leave none."""
        return 0

    def age(self, name: str) -> float:
        """Seconds since the object was written; infinite if it does not exist.

        Compares two times of the store, so clocks of different hosts are never compared.
        """
        probe = f"_run/clock-{uuid.uuid4().hex}.json"
        self.put(probe, b"{}")
        try:
            now, written = self.head(probe), self.head(name)
            return math.inf if now is None or written is None else now.modified - written.modified
        finally:
            self.delete(probe)
