"""Connect to an existing scheduler by its address, without encryption or over TLS."""

import contextlib
import socket
import ssl
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from distributed import Client
from distributed.comm import get_address_host_port
from distributed.comm.core import CommClosedError
from distributed.security import Security
from distributed.versions import VersionMismatchWarning

from ..config.models import Cluster, Tls
from ..core.errors import ConfigError, LleError
from .limits import workers_of
from .version_check import check_versions

ANSWER_SECONDS = 30
WAIT_SECONDS = 30
PROBE_SECONDS = 5.0
RETRY_SECONDS = 0.2


@contextlib.contextmanager
def address_cluster(cluster: Cluster) -> Iterator[Client]:
    """A client of the scheduler at `cluster.address`.

    Raises LleError if the scheduler does not answer or has no worker. Raises ConfigError for bad TLS files, different
    versions, and a memory_resource that no worker offers (its tasks would wait forever).
    """
    where = f"execution.cluster.address {cluster.address}"
    security = None if cluster.tls is None else _security(cluster.tls)
    with connected(str(cluster.address), where, ANSWER_SECONDS, security) as client:
        with contextlib.suppress(TimeoutError):
            client.wait_for_workers(1, timeout=WAIT_SECONDS)  # workers may be starting or restarting
        workers = workers_of(client)
        if not workers:
            raise LleError(f"{where}: the scheduler has no workers; start some first")
        check_versions(client, where)
        resource = cluster.memory_resource
        if resource is not None and not any(worker["resources"].get(resource, 0) >= 1 for worker in workers.values()):
            raise ConfigError(
                f"execution.cluster.memory_resource {resource}: none of the {len(workers)} workers offers it; start "
                f"one with `MKL_CBWR=AUTO,STRICT dask worker {cluster.address} --no-nanny --nthreads 1 "
                f"--memory-limit 0 --resources {resource}=1`"
            )
        yield client


@contextlib.contextmanager
def connected(address: str, where: str, seconds: float, security: Security | None = None) -> Iterator[Client]:
    """A client of the scheduler at an address, closed at the end.

    Raises LleError if it does not answer in time, ConfigError if the two sides do not agree on TLS or the peer uses
    HTTP.
    """
    deadline = time.monotonic() + seconds
    if address.startswith("tcp://"):
        _wait_for_greeting(address, where, deadline)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionMismatchWarning)  # check_versions raises an error instead
            client = Client(address, timeout=max(1.0, deadline - time.monotonic()), security=security)
    except (OSError, TimeoutError, ValueError) as error:
        raise _refusal(error, address, where, seconds) from None
    with client:
        yield client


def _wait_for_greeting(address: str, where: str, deadline: float) -> None:
    """Wait for the first bytes of Dask's handshake. Also returns if Client can report the problem itself.

    Client would wait forever for a peer that accepts the connection and sends nothing.
    """
    while True:
        try:
            greeting, is_silent = _first_bytes(address), False
        except OSError as error:  # not a timeout: no process listens yet
            greeting, is_silent = None, isinstance(error, TimeoutError)
        if greeting is not None and greeting.startswith(b"HTTP/"):
            raise ConfigError(
                f"{where}: the peer uses HTTP, not Dask's protocol; give the port of the scheduler (default 8786), "
                f"not that of its dashboard (8787) or of a proxy"
            )
        if greeting is not None or (is_silent and _uses_tls(address)):
            return
        if time.monotonic() > deadline:
            if is_silent:
                raise LleError(
                    f"{where}: the peer accepts connections but sends nothing",
                    advice="check that a Dask scheduler runs at this address",
                )
            return
        time.sleep(RETRY_SECONDS)


def _first_bytes(address: str) -> bytes:
    """First bytes of a peer: sent at once, as by Dask schedulers, or in reply to an HTTP request. Raises OSError."""
    with socket.create_connection(get_address_host_port(address), PROBE_SECONDS) as plain:
        try:
            return plain.recv(16)
        except TimeoutError:
            plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return plain.recv(16)


def _refusal(error: Exception, address: str, where: str, seconds: float) -> LleError:
    """The reason for a failed connection: a TLS disagreement, which a retry does not cure, or no answer."""
    cause, encrypted = innermost(error), address.startswith("tls://")
    described = f"{type(cause).__name__}: {cause}"
    # A scheduler without TLS answers the handshake in its own protocol, which is a ValueError in some versions of Dask.
    is_closed = isinstance(error, CommClosedError | ValueError)
    if isinstance(cause, ssl.SSLCertVerificationError) or (
        is_closed and ((encrypted and isinstance(cause, ssl.SSLError | ValueError)) or _uses_tls(address))
    ):
        return ConfigError(
            f"{where}: this client and the scheduler do not agree on TLS ({described}). Write tcp:// for a scheduler "
            f"without TLS. For one with TLS write tls:// and give execution.cluster.tls: as ca the certificate of the "
            f"authority that signed the scheduler's, as cert and key a certificate that its authority signed"
        )
    return LleError(
        f"{where}: {'the connection was closed' if is_closed else f'no scheduler answers within {seconds:.0f} s'} "
        f"({described})",
        advice="check that a Dask scheduler runs there",
    )


def _uses_tls(address: str) -> bool:
    """Whether the server at an address begins a TLS handshake. Nothing is sent, so no trust is needed."""
    try:
        ssl.get_server_certificate(get_address_host_port(address), timeout=PROBE_SECONDS)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


def _security(tls: Tls) -> Security:
    """TLS settings for both directions. Raises ConfigError that names the missing or wrong file."""
    for key, path in tls:
        if not Path(path).expanduser().is_file():
            raise ConfigError(f"execution.cluster.tls.{key}: {path}: no such file (working directory {Path.cwd()})")
    ca, cert, key = (str(Path(path).expanduser()) for path in (tls.ca, tls.cert, tls.key))

    def password() -> str:  # without this function OpenSSL would prompt on the terminal and wait
        raise ConfigError(
            f"execution.cluster.tls.key: {tls.key}: the key is encrypted, and its password cannot be entered here; "
            f"store it without a password (openssl pkey -in KEY -out PLAIN_KEY), readable by its owner only"
        )

    try:
        ssl.create_default_context(cafile=ca).load_cert_chain(cert, key, password)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"execution.cluster.tls: expected PEM files: as ca ({tls.ca}) certificates, as cert ({tls.cert}) a "
            f"certificate, as key ({tls.key}) the private key of that certificate; found: {error}"
        ) from None
    return Security(tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True)


def innermost(error: BaseException) -> BaseException:
    """The original cause of an error: Dask's own message only reports a timeout."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
