"""Find secrets in configs and URLs, and keep them out of messages.

A secret belongs in the environment or in the identity of the machine. A config is copied into the store, the report
and the logs, so a config with a secret is refused before anything else reads it.
"""

import os
import re
from collections.abc import Collection, Iterator
from urllib.parse import urlsplit

from .errors import ConfigError

SECRET_NAME = re.compile(
    r"secret|passw|token|credential|connection_?string|(^|_)(pwd|sas)$|"
    r"(access|account|api|customer|encryption|master|private|sas|shared|storage)_?key",
    re.IGNORECASE,
)
PLACE_NAME = re.compile(r"(credentials|dir|file|folder|home|path)$", re.IGNORECASE)
SECRET_TEXT = {
    "the id of an AWS access key": re.compile(r"(?<![A-Z0-9])(AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])"),
    "the id of a Google storage key": re.compile(r"(?<![A-Z0-9])GOOG1?[A-Z0-9]{20,}"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "a signature": re.compile(
        r"[?&](X-(Amz|Goog)-(Signature|Credential|Security-Token)|Signature|sig|access_token)=", re.IGNORECASE
    ),
}
# These patterns start at fixed positions and never backtrack, so the time is linear in the length of the text.
ASSIGNED_WORD = re.compile(r"(?<!\w)(\w++)\s*+=\s*+[^\s$]")
ASSIGNED_SECRET = re.compile(r"secret|passw(or)?d|token|(access|account|api)_?key", re.IGNORECASE)
USER_OF_URL = re.compile(r"://([^/?#\s]*)@")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*$")
LONGEST_SCHEME = 40
WITH_CONTAINER = {"abfs", "abfss", "wasb", "wasbs"}  # Azure URLs: container@account, not a secret
SHORTEST = 8  # characters; shorter values of secret variables are not searched for
HIDDEN = "***"


def find_secret(text: str, values: Collection[str] | None = None) -> str | None:
    """The kind of secret in a text, or None. `values`: those of secret environment variables; None: read them now."""
    for kind, pattern in SECRET_TEXT.items():
        if pattern.search(text):
            return kind
    if any(ASSIGNED_SECRET.search(match[1]) for match in ASSIGNED_WORD.finditer(text)):
        return "a password or key being set"
    for match in USER_OF_URL.finditer(text):
        scheme = SCHEME.search(text[max(0, match.start() - LONGEST_SCHEME) : match.start()])
        if scheme and (":" in match[1] or scheme[0].lower() not in WITH_CONTAINER):
            return "a user name or password before the host"
    if any(value in text for value in (_environment() if values is None else values)):
        return "the value of a secret variable of the environment"
    return None


def secrets_in(data: object, key: str = "", values: Collection[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield (key, kind of secret) for each secret in nested dicts and lists. The values are never returned."""
    values = _environment() if values is None else values
    if isinstance(data, dict):
        for name, value in data.items():
            full_key = f"{key}.{name}" if key else str(name)
            if SECRET_NAME.search(str(name)) and value not in (None, "", [], {}):
                yield redact(full_key), "a key that is named like a secret"
            elif kind := find_secret(str(name), values):
                yield f"{key}.{HIDDEN}" if key else HIDDEN, kind
            else:
                yield from secrets_in(value, full_key, values)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from secrets_in(value, key, values)
    elif isinstance(data, str) and (kind := find_secret(data, values)):
        yield key, kind


def redact(text: str) -> str:
    """A text without the values of secret environment variables and without user names in URLs."""
    for value in sorted(_environment(), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return re.sub(r"://([^/?#\s'\"]*)@", lambda url: f"://{HIDDEN}@" if ":" in url[1] else url[0], text)


def refuse_secret(url: str) -> None:
    """Raises ConfigError if a URL holds credentials."""
    if kind := find_secret(url):
        parts = urlsplit(url)
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
        raise ConfigError(
            f"{shown}: the URL holds {kind}. Credentials come from the environment or the identity of the "
            f"machine; remove it from the URL, and replace it if others have seen it"
        )


def _environment() -> set[str]:
    return {
        value
        for name, value in os.environ.items()
        if SECRET_NAME.search(name) and len(value) >= SHORTEST and not _is_place(name, value)
    }


def _is_place(name: str, value: str) -> bool:
    """Whether a variable holds the path of a secret. One AWS secret key in 64 begins with a slash too."""
    is_path_like = value.startswith(("/", "~"))
    return is_path_like and (bool(PLACE_NAME.search(name)) or os.path.exists(os.path.expanduser(value)))
