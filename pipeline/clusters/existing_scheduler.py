"""A scheduler that is already there, by its address: plain, or over TLS with the files of the config."""

import contextlib
import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

from distributed import Client
from distributed.comm.core import CommClosedError
from distributed.security import Security
from distributed.versions import VersionMismatchWarning

from pipeline.clusters.version_check import check_versions
from pipeline.config.models import Cluster, Tls
from pipeline.core.errors import ConfigError, LleError

ANSWER_SECONDS = 30
WAIT_SECONDS = 30
PROBE_SECONDS = 5


@contextlib.contextmanager
def address_cluster(cluster: Cluster) -> Iterator[Client]:
    """A client of the scheduler at `cluster.address`.

    Raises LleError when nobody answers or no worker is there, ConfigError for bad TLS files, for versions that differ
    and for a memory_resource that no worker offers (its tasks would wait for ever).
    """
    where = f"execution.cluster.address {cluster.address}"
    security = None if cluster.tls is None else _security(cluster.tls)
    with connected(str(cluster.address), where, ANSWER_SECONDS, security) as client:
        with contextlib.suppress(TimeoutError):
            client.wait_for_workers(1, timeout=WAIT_SECONDS)  # they may just be starting, or starting again
        workers = client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise LleError(f"{where}: the scheduler has no workers; start some first")
        check_versions(client, where)
        wanted = cluster.memory_resource
        if wanted is not None and not any(worker["resources"].get(wanted, 0) >= 1 for worker in workers.values()):
            raise ConfigError(
                f"execution.cluster.memory_resource {wanted}: none of the {len(workers)} workers offers it; start one "
                f"with `MKL_CBWR=AUTO,STRICT dask worker {cluster.address} --no-nanny --nthreads 1 --memory-limit 0 "
                f"--resources {wanted}=1`"
            )
        yield client


@contextlib.contextmanager
def connected(address: str, where: str, seconds: float, security: Security | None = None) -> Iterator[Client]:
    """A client of the scheduler at an address, closed at the end.

    Raises LleError when it does not answer in time, ConfigError when the two sides do not agree on TLS.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionMismatchWarning)  # check_versions makes an error of it
            client = Client(address, timeout=seconds, security=security)
    except (OSError, TimeoutError, ValueError) as error:
        raise _refusal(error, address, where, seconds) from None
    with client:
        yield client


def _refusal(error: Exception, address: str, where: str, seconds: float) -> LleError:
    """Why there is no connection: nobody answers, or somebody does and one side does not trust the other."""
    encrypted, cause = address.startswith("tls://"), innermost(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ConfigError(
            f"{where}: the scheduler's certificate does not hold by execution.cluster.tls.ca ({cause.verify_message}); "
            f"give the file of the authority that signed it"
        )
    if not isinstance(error, CommClosedError | ValueError):  # ValueError: a plain scheduler spoke before TLS began
        return LleError(f"{where}: no scheduler answers within {seconds:.0f} s ({_said(cause)}); is it up?")
    if encrypted and _speaks_tls(address):
        return ConfigError(
            f"{where}: the scheduler does not accept the certificate of execution.cluster.tls.cert and tls.key "
            f"({_said(cause)}); give one that its authority has signed"
        )
    if encrypted and isinstance(cause, ssl.SSLError | ValueError):
        return ConfigError(
            f"{where}: who answers there speaks no TLS ({_said(cause)}); write tcp://, without execution.cluster.tls, "
            f"or start the scheduler with --protocol tls"
        )
    if not encrypted and _speaks_tls(address):
        return ConfigError(
            f"{where}: the scheduler there speaks TLS; write tls://{address.partition('://')[2]} and give "
            f"execution.cluster.tls {{ca, cert, key}}"
        )
    return LleError(f"{where}: the connection was closed ({_said(cause)}); is a scheduler of Dask there?")


def _speaks_tls(address: str) -> bool:
    """Whether who answers at an address begins to speak TLS; nothing is sent, so nobody has to be trusted."""
    host, _, port = address.partition("://")[2].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PROBE_SECONDS) as plain:
            context.wrap_socket(plain).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


def _security(tls: Tls) -> Security:
    """Encryption both ways. Raises ConfigError that names the file that is missing or is not what it should be."""
    for key, path in tls:
        if not Path(path).expanduser().is_file():
            raise ConfigError(f"execution.cluster.tls.{key}: {path}: no such file (working directory {Path.cwd()})")
    ca, cert, key = (str(Path(path).expanduser()) for path in (tls.ca, tls.cert, tls.key))
    try:
        ssl.create_default_context(cafile=ca)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"execution.cluster.tls.ca: {tls.ca}: not a PEM file of certificates ({error})") from None

    def password() -> str:  # without it OpenSSL asks on the terminal and waits
        raise ConfigError(
            f"execution.cluster.tls.key: {tls.key}: the key is encrypted, and there is nobody to ask for its password; "
            f"store it without one (openssl pkey -in KEY -out PLAIN_KEY), readable by its owner only"
        )

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, password)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"execution.cluster.tls: {tls.cert} and {tls.key} are not a PEM certificate and its key ({error})"
        ) from None
    return Security(tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True)


def innermost(error: BaseException) -> BaseException:
    """The cause of an error: Dask's own text only says that it waited."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
