"""Row ranges of arrays in compressed files, which can only be read forwards."""

import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import InputError
from .base import AnyArray
from .damage import decoding
from .files import FileRows, Stamp

SKIP_BYTES = 1 << 20
STREAM_BYTES = 1 << 22  # bytes per request of a compressed file behind a URL
OPEN_STREAMS = 8
COMPRESSED = "a complete compressed file"


@dataclass
class _Stream:
    key: tuple[Any, ...]
    handle: io.BufferedIOBase
    position: int = 0

    def read_into(self, target: memoryview) -> int:
        filled = 0
        while filled < len(target) and (count := self.handle.readinto(target[filled:])):
            filled += count
        self.position += filled
        return filled

    def skip_to(self, offset: int) -> None:
        scratch = memoryview(bytearray(min(SKIP_BYTES, offset - self.position)))
        while self.position < offset and self.read_into(scratch[: offset - self.position]):
            pass


class StreamPool:
    """Open streams of one process: reading a file block by block takes one pass over it, not one per block.

    A stream in use is out of the pool, so threads never share one. The pool returns the stream closest before the
    wanted byte, and closes the least recently used streams beyond `capacity`.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._idle: list[_Stream] = []
        self._lock = threading.Lock()

    @contextmanager
    def at(self, key: tuple[Any, ...], offset: int, open_stream: Callable[[], io.BufferedIOBase]) -> Iterator[_Stream]:
        """A stream of the file `key` at byte `offset` (or at its end, if it is shorter)."""
        # A forked child shares file positions with its parent, so each process has its own streams.
        key = (os.getpid(), *key)
        stream = self._take(key, offset) or _Stream(key, open_stream())
        try:
            stream.skip_to(offset)
            yield stream
        except BaseException:
            stream.handle.close()
            raise
        self._give_back(stream)

    def _take(self, key: tuple[Any, ...], offset: int) -> _Stream | None:
        with self._lock:
            usable = [stream for stream in self._idle if stream.key == key and stream.position <= offset]
            if not usable:
                return None
            nearest = max(usable, key=lambda stream: stream.position)
            self._idle = [stream for stream in self._idle if stream is not nearest]
            return nearest

    def _give_back(self, stream: _Stream) -> None:
        with self._lock:
            self._idle.append(stream)
            closing, self._idle = self._idle[: -self._capacity], self._idle[-self._capacity :]
        for old in closing:
            old.handle.close()

    def close(self) -> None:
        """Close all idle streams."""
        with self._lock:
            closing, self._idle = self._idle, []
        for stream in closing:
            stream.handle.close()


STREAMS = StreamPool(OPEN_STREAMS)


class StreamedRows(FileRows):
    """An array of C order that starts at byte `offset` of a decompressed stream."""

    def __init__(
        self,
        stamp: Stamp,
        member: str,
        where: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        offset: int,
        open_stream: Callable[[], io.BufferedIOBase],
    ) -> None:
        self.where, self.shape, self.dtype = where, shape, dtype
        self._stamp, self._member, self._offset, self._open = stamp, member, offset, open_stream
        self._row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize

    def read(self, start: int, stop: int) -> AnyArray:
        """Rows [start, stop); decompresses everything between the last read of this process and `stop`."""
        buffer = np.empty((stop - start) * self._row_bytes, np.uint8)
        with (
            decoding(self.where, COMPRESSED),
            STREAMS.at((*self._stamp, self._member), self._offset + start * self._row_bytes, self._open) as stream,
        ):
            filled = stream.read_into(buffer.data)
            # The checksum is verified at the end of the stream, so the last block requests one byte more.
            n_extra = stream.read_into(memoryview(bytearray(1))) if stop == self.shape[0] else 0
        if filled < len(buffer) or n_extra:
            problem = "more data" if n_extra else f"the end inside rows {start} to {stop - 1}"
            raise InputError(
                f"{self.where}: its header gives shape {self.shape} of {self.dtype}, found {problem}; the file "
                "is cut off or damaged, create it again"
            )
        return buffer.view(self.dtype).reshape(stop - start, *self.shape[1:])
