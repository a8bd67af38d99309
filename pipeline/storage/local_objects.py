"""Objects that are files below a folder."""

import contextlib
import errno
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..core.errors import StoreError
from .object_protocol import Head, Objects
from .storage_errors import persist, storage_errors

PARTIAL_NAME = re.compile(r".+\.[0-9a-f]{32}\.partial", re.DOTALL)  # zarr's own writes have no leading dot
NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


class LocalObjects(Objects):
    """Files below a folder. A write creates a temporary file and renames it."""

    def __init__(self, root: str) -> None:
        self.root = Path(root).expanduser().absolute()
        self.url = str(self.root)  # absolute: workers may have another working directory

    def _path(self, name: str) -> Path:
        """The path of an object. Raises StoreError for a name outside the root: names also come from stored records."""
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise StoreError(
                f"{self.url}: a record holds the name {name!r}, which is outside the store; nothing was read or "
                "deleted there. Use another store: this one is damaged or was tampered with"
            )
        return self.root / name

    def put(self, name: str, data: bytes) -> None:
        _put(self._path(name), lambda temporary: temporary.write_bytes(data))

    def create(self, name: str, data: bytes) -> bool:
        target = self._path(name)
        temporary = _temporary(target)

        # A rename would replace the file of another writer. A link fails if the name exists, and the file is complete
        # before it has this name.
        def write() -> None:  # repeated if another process deletes the empty folder meanwhile
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)

        persist(write, str(target))
        with storage_errors(str(target)):
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            finally:
                temporary.unlink(missing_ok=True)
        return True

    def get(self, name: str) -> bytes | None:
        with storage_errors(str(self._path(name))), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return self._path(name).read_bytes()
        return None

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        path, missing = self._path(name), contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with storage_errors(str(path)), missing, path.open("rb") as file:
            file.seek(start)
            return file.read(length)
        return None

    def names(self, prefix: str) -> list[str]:
        base = self._path(prefix)
        return sorted(path.relative_to(self.root).as_posix() for path in _files(base) if path.suffix != ".partial")

    def folders(self, prefix: str) -> list[str]:
        with storage_errors(str(self._path(prefix))), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(path.name for path in self._path(prefix).iterdir() if path.is_dir())
        return []

    def copy(self, names: Sequence[str], source: Objects) -> None:
        folder = source.place()
        assert isinstance(folder, str)
        for name in names:
            _put(self._path(name), partial(_link, Path(folder) / name))

    def head(self, name: str) -> Head | None:
        with storage_errors(str(self._path(name))), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            status = self._path(name).stat()
            return Head(status.st_size, status.st_mtime) if stat.S_ISREG(status.st_mode) else None
        return None

    def delete(self, name: str) -> None:
        target = self._path(name)
        with storage_errors(str(target)):
            if target.is_dir():
                shutil.rmtree(target, ignore_errors=False)
            else:
                target.unlink(missing_ok=True)

    def delete_empty_folders(self) -> None:
        folders = [path for path in self.root.rglob("*") if path.is_dir()]
        for folder in sorted([self.root, *folders], reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def place(self) -> str:
        return str(self.root)

    def delete_partial_files(self) -> int:
        partial_files = [path for path in _files(self.root) if PARTIAL_NAME.fullmatch(path.name)]
        for path in partial_files:
            path.unlink(missing_ok=True)
        return len(partial_files)


def _files(folder: Path) -> list[Path]:
    """All files below a folder; none if it does not exist. Raises StoreError that names a folder it cannot read."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            with storage_errors(str(error.filename)):
                raise error

    return [Path(parent, name) for parent, _, names in os.walk(folder, onerror=refuse) for name in names]


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")


def _put(target: Path, create: Callable[[Path], object]) -> None:
    """Create a temporary file, and rename it to the target."""
    temporary = _temporary(target)

    def write() -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            create(temporary)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    persist(write, str(target))


def _link(source: Path, target: Path) -> None:
    """Hard-link a file; copy it if the file system has no links or the file has too many."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        shutil.copyfile(source, target)
