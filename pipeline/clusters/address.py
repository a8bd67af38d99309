"""A scheduler that is already there, by its address: plain, or over TLS with the files of the config."""

import contextlib
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

from distributed import Client
from distributed.security import Security
from distributed.versions import VersionMismatchWarning

from pipeline.clusters.versions import check_versions
from pipeline.config import Cluster, Tls
from pipeline.errors import ConfigError, LleError

ANSWER_SECONDS = 30
WAIT_SECONDS = 30


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
        workers = client.scheduler_info()["workers"]
        if not workers:
            raise LleError(f"{where}: the scheduler has no workers; start some first")
        check_versions(client, where)
        wanted = cluster.memory_resource
        if wanted is not None and not any(worker["resources"].get(wanted, 0) >= 1 for worker in workers.values()):
            raise ConfigError(
                f"execution.cluster.memory_resource {wanted}: none of the {len(workers)} workers offers it; start one "
                f"with `dask worker {cluster.address} --no-nanny --nthreads 1 --memory-limit 0 --resources {wanted}=1`"
            )
        yield client


@contextlib.contextmanager
def connected(address: str, where: str, seconds: float, security: Security | None = None) -> Iterator[Client]:
    """A client of the scheduler at an address, closed at the end. Raises LleError when it does not answer in time."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionMismatchWarning)  # check_versions makes an error of it
            client = Client(address, timeout=seconds, security=security)
    except (OSError, TimeoutError, ValueError) as error:
        raise LleError(f"{where}: no scheduler answers within {seconds:.0f} s ({_reason(error)}); is it up?") from None
    with client:
        yield client


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
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"execution.cluster.tls: {tls.cert} and {tls.key} are not a PEM certificate and its key ({error})"
        ) from None
    return Security(tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True)


def _reason(error: BaseException) -> str:
    """The innermost cause: Dask's own text only says that it waited."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"
