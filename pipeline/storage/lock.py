"""The run lock: one driver at a time holds a store. The lock of a dead process is taken over."""

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

import psutil

from ..core.errors import StoreError, StoreHeld
from ..core.machine import process_location
from ..core.signals import interruptible
from .store import Store

LOCK = "_run/lock.json"
HEARTBEAT_SECONDS = 15.0
STALE_SECONDS = 300.0
POLL_SECONDS = 5.0
TORN = "torn"  # token of a lock that cannot be read
JOB_UID = "LLE_JOB_UID"  # environment variable: uid of the Kubernetes Job of this process's pod

FOR_A_RUN = "Wait for it (execution.lock_wait), stop it, or choose another output.store"
FOR_A_COMMAND = "Wait until it has ended, or stop it, and repeat this command"
"""Advice to a run, and to a command that works on a store that is there."""

T = TypeVar("T")


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock: where its id is valid, its start, its last sign of life, and its Kubernetes Job.

    Times are in seconds since 1970. `token` differs between all holders. `numbers` is the id of the PID namespace: None
    where the system does not show it, 0 in a lock without it, of which only the host is compared.
    """

    token: str
    pid: int
    host: str
    started: float
    alive: float
    numbers: int | None = 0
    job: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether its process id is valid here."""
        host, numbers = process_location()
        return self.host == host and self.numbers in (0, numbers)

    @property
    def is_of_my_job(self) -> bool:
        """Whether it was an earlier pod of this process's Kubernetes Job.

        That pod is dead: the Job runs one pod at a time (parallelism 1), and with podReplacementPolicy Failed
        Kubernetes starts the next pod only after the last one has terminated.
        """
        return bool(self.job) and self.job == os.environ.get(JOB_UID)


class RunLock:
    """A lock file. Host, process id and start time identify its holder, who renews it every 15 s.

    `cure` is the advice if another run holds it.
    """

    def __init__(self, store: Store, name: str = LOCK, cure: str = FOR_A_RUN) -> None:
        self.store, self.name, self.cure = store, name, cure
        started, (host, numbers) = psutil.Process().create_time(), process_location()
        job = os.environ.get(JOB_UID)
        self.me = Holder(uuid.uuid4().hex, os.getpid(), host, started, time.time(), numbers, job)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._show_life, daemon=True)

    def __enter__(self) -> "RunLock":
        while not self.store.objects.create(self.name, self._content()):
            holder = self.store.read_record(self.name, Holder)
            if holder is None and not self.store.objects.exists(self.name):
                continue  # released in the meantime
            if holder is not None and holder_alive(self.store, self.name, holder):
                raise self._refused(holder)
            self._remove_dead(TORN if holder is None else holder.token)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        with contextlib.suppress(StoreError):
            if self.held():
                self.store.objects.delete(self.name)

    def held(self, by: Holder | None = None) -> bool:
        """Whether this run (or `by`) still holds the lock. Another may take it over if this process was suspended."""
        holder = self.store.read_record(self.name, Holder)
        return holder is not None and holder.token == (by or self.me).token

    def _remove_dead(self, token: str) -> None:
        """Remove a dead holder's lock. Of several runs that try, only the one that creates the claim file may."""
        claim = f"_run/claim-{token}.json"
        # An object store has no "delete if unchanged". Two runs may find the same dead holder. Without the claim, the
        # slower one could delete the new lock of the faster one.
        if not self.store.objects.create(claim, self._content()):
            other_holder = self.store.read_record(claim, Holder)
            if other_holder is not None and holder_alive(self.store, claim, other_holder):
                raise self._refused(other_holder)
            self.store.objects.delete(claim)  # the run that created it died; the caller tries again
            return
        # The run that held the claim before may have removed the dead lock, and a third one may hold the store now.
        current = self.store.read_record(self.name, Holder)
        if (TORN if current is None else current.token) == token:
            self.store.objects.delete(self.name)
        self.store.objects.delete(claim)

    def _refused(self, holder: Holder) -> StoreHeld:
        return StoreHeld(
            f"{self.store.url}: another run holds this store (process {holder.pid} on {holder.host}). {self.cure}",
            lambda: self.held(holder) and holder_alive(self.store, self.name, holder),
        )

    def _content(self) -> bytes:
        return json.dumps(asdict(replace(self.me, alive=time.time()))).encode()

    def _show_life(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(StoreError):
                # If this process is suspended between the check and the write, it may replace the lock of a run that
                # has taken over. That run then finds by `held` that the lock is not its own, and does not publish.
                if self.held():
                    self.store.objects.put(self.name, self._content())


def holder_alive(store: Store, name: str, holder: Holder) -> bool:
    """Whether the holder of a lock is alive: its process if it is visible here, else the age of the lock.

    The age uses only the store's clock, because the clocks of two hosts can differ.
    """
    if not holder.is_local:
        return not holder.is_of_my_job and store.objects.age(name) < STALE_SECONDS
    try:
        process = psutil.Process(holder.pid)
        alive = abs(process.create_time() - holder.started) < 1.0
        return bool(alive and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for_lock(act: Callable[[], T], seconds: float, log: Callable[[str], None]) -> T:
    """Call `act`; repeat it while another run holds the lock, for at most `seconds`.

    `act` starts from the beginning each time, so it sees the results of the other run. Raises StoreHeld after that
    time, Interrupted on SIGINT and SIGTERM.
    """
    deadline, announced = time.monotonic() + seconds, False
    with interruptible():
        while True:
            try:
                return act()
            except StoreHeld as error:
                held = error
            if seconds and not announced:
                log(f"{held}. Waiting for at most {seconds:.0f} s")
            announced, is_held = True, True
            while is_held:
                if (remaining := deadline - time.monotonic()) <= 0:
                    raise StoreHeld(f"{held}. Waited {seconds:.0f} s (execution.lock_wait)" if seconds else str(held))
                time.sleep(min(POLL_SECONDS, remaining))
                is_held = held.is_held()


def running(store: Store) -> bool:
    """Whether a live driver holds the store."""
    holder = store.read_record(LOCK, Holder)
    if holder is not None and not holder.is_local:
        age = time.time() - holder.alive  # a status query must not write to the store
        return not holder.is_of_my_job and age < STALE_SECONDS
    return holder is not None and holder_alive(store, LOCK, holder)
