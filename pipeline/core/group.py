"""Processes that run the same program at one time, each on some rows of the matrices (SPMD, as with MPI).

Kernels get a `Group` as an argument. engine/worker_group.py has the one whose processes are Dask workers.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from .arrays import Array


class Group(Protocol):
    """What one process, the one with the number `rank`, sees of its group. All must make the same calls in one order.

    Both calls raise GroupLost if another process has ended or has raised an error. The program must then end too.
    """

    @property
    def rank(self) -> int:
        """0 .. size - 1."""

    @property
    def size(self) -> int: ...

    def exchange(self, parts: Mapping[int, Array], sources: Collection[int]) -> dict[int, Array]:
        """Send `parts[r]` to each rank r in it; returns the array of each rank in `sources`, in the order of `sources`.

        A rank may be in `sources` only if it sends a part to this one in its same call. Arrays of any shape, numbers
        of any dtype; they arrive in C order. When the call returns, the parts have arrived, and may be overwritten.
        """

    def gather(self, part: Array) -> list[Array]:
        """The arrays of all ranks by rank, the own one not copied. They may differ in shape. Others must stay as is."""


class OneProcess:
    """The group of this process alone."""

    rank, size = 0, 1

    def exchange(self, parts: Mapping[int, Array], sources: Collection[int]) -> dict[int, Array]:
        """An empty dict: there is no other rank."""
        return {}

    def gather(self, part: Array) -> list[Array]:
        """[part]."""
        return [part]
