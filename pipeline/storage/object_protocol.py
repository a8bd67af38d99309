"""What every place for whole objects offers, a local folder or an object store."""

from collections.abc import Sequence
from typing import Any, Protocol


class Objects(Protocol):
    """Bytes by name under a root; names use '/'."""

    url: str

    def put(self, name: str, data: bytes) -> None:
        """Write the whole object, atomically."""

    def create(self, name: str, data: bytes) -> bool:
        """Write the object only if there is none; False when there is one already."""

    def get(self, name: str) -> bytes | None:
        """The object's bytes, None when there is no such object."""

    def names(self, prefix: str) -> list[str]:
        """Names of all objects below a folder, sorted."""

    def folders(self, prefix: str) -> list[str]:
        """Names of the folders right below one, sorted, without looking into them."""

    def copy(self, names: Sequence[str], source: "Objects") -> None:
        """Take over objects of another place under their names, replacing what is there; none is read through here.

        Locally the two names may be links to the same bytes: writes replace a name and never change bytes in place.
        """

    def exists(self, name: str) -> bool:
        """Whether the object is there."""

    def size(self, name: str) -> int:
        """Bytes of the object, 0 when there is none."""

    def delete(self, name: str) -> None:
        """Remove an object or everything below a folder; nothing there is fine."""

    def place(self) -> Any:
        """The folder (str), or obstore's store."""

    def sweep(self) -> int:
        """Remove what killed writers left behind; returns how many."""

    def age(self, name: str) -> float:
        """Seconds since the object was written, by the store's own clock; infinite when there is none."""
