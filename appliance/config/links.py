"""The checks of `cluster.security` and `sinks.*.tls`, for servers elsewhere with TLS and logins.

This module reads only the files of the CAs.
"""

from pathlib import Path as FilePath

from appliance.config.document import Document
from appliance.config.faults import Path, found_text
from appliance.config.model import MillConfig

SECTION: Path = ("cluster", "security")


def check_links(config: MillConfig, document: Document, home: str) -> None:
    """Append the faults of `cluster.security`. The file of the CAs is relative to `home`."""
    security = config.cluster.security
    if security is None:
        return
    if config.cluster.bootstrap_servers is None:
        document.add(
            SECTION,
            "no cluster.bootstrap_servers beside it",
            "the addresses of the cluster to enter, or no cluster.security: the mill reaches its"
            " own brokers without TLS and login",
        )
    password = None if security.password is None else security.password.get_secret_value()
    if security.user is not None and password is None:
        expected = "password beside it: the user logs in with it"
        document.add((*SECTION, "user"), found_text(security.user), expected)
    if security.user is None and password is not None:
        document.add(
            (*SECTION, "password"),
            "no user beside it",
            "user beside it, or no password: TLS alone",
        )
    if password == "":
        document.add((*SECTION, "password"), "an empty text", "the password of the user")
    if security.ca is not None:
        _check_ca((*SECTION, "ca"), security.ca, document, home)


def check_sinks_tls(config: MillConfig, document: Document, home: str) -> None:
    """Append the faults of `tls` of both sinks. The files of the CAs are relative to `home`."""
    for name in ("redis", "mysql"):
        section = getattr(config.sinks, name)
        if section is None or section.tls is None:
            continue
        if section.host is None:
            document.add(
                ("sinks", name, "tls"),
                f"no sinks.{name}.host beside it",
                "the host of your own server, or no tls: the mill's parts reach the bundled server"
                " inside this machine",
            )
        elif section.tls.ca is not None:
            _check_ca(("sinks", name, "tls", "ca"), section.tls.ca, document, home)


def _check_ca(key: Path, ca: str, document: Document, home: str) -> None:
    from protocol.client.tls import TlsFileError, TlsSettings, client_context

    path = str(FilePath(home) / ca)
    try:
        client_context(TlsSettings(ca=path))
    except TlsFileError as error:
        document.add(key, f"{ca!r} ({error.reason})", "a file of CAs in PEM format")
