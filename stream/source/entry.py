"""How the JVM's Kafka clients enter a cluster with TLS and logins.

The password is never among the options, because Spark shows these in plans, logs and its page, and
sends them to executors. The options name its file, which `java/PasswordFile.java` reads. Kafka's
clients share one login as long as their options are equal, so these have the file's last change:
the next query of the stream then logs in with a changed password.
"""

import os
from dataclasses import replace
from pathlib import Path

from protocol.security.cluster_security import ClusterEntry

PASSWORD_READER = "millrace.PasswordFile"
PASSWORD_NAME = "cluster-password"


def with_password_file(entry: ClusterEntry, folder: Path) -> ClusterEntry:
    """Return the entry with a file for the password. Raises OSError.

    If the settings have the password itself, write it into a file of `folder` that only this user
    can read.
    """
    security = entry.security
    if security is None or security.password is None:
        return entry
    path = folder / PASSWORD_NAME
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{security.password}\n")
    kept = replace(security, password=None, password_file=str(path))
    return ClusterEntry(entry.servers, kept)


def entry_options(entry: ClusterEntry) -> dict[str, str]:
    """Return the options with which Spark's Kafka source reaches the cluster. They hold no secret.

    The entry must have its password in a file.
    """
    options = {"kafka.bootstrap.servers": entry.servers}
    security = entry.security
    if security is None:
        return options
    options["kafka.security.protocol"] = "SSL" if security.user is None else "SASL_SSL"
    if security.ca is not None:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = security.ca
    if security.user is not None:
        assert security.password_file is not None, "the password is in a file"
        user, file = _quoted(security.user), _quoted(security.password_file)
        options["kafka.sasl.mechanism"] = security.mechanism
        options["kafka.sasl.jaas.config"] = (
            f"{PASSWORD_READER} required username={user} passwordFile={file}"
            f' changed="{_change_of(security.password_file)}";'
        )
    return options


def _change_of(file: str) -> int:
    """Return a number that differs after the file was changed."""
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0


def _quoted(text: str) -> str:
    """Return a value of a JAAS configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
