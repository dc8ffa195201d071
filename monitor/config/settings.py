"""The settings of the monitor: the section `monitor:` of the file, and those of the process."""

import ipaddress
import re
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from monitor.config.alert_rules import AlertsSection, Duration
from protocol.security.cluster_security import ClusterEntry, ClusterSecurity
from protocol.units import parse_duration_ms
from sinks.config import SinksSettings

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_CLUSTER = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
CLUSTERS_MAX = 8
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port` or `[v6]:port`. Raise ValueError with what was expected."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"found {address!r}, expected host:port such as 127.0.0.1:8090")
    return host, int(port)


class ClusterSection(BaseModel):
    """One entry of `monitor.clusters`: another cluster that the page shows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        description="its name on the page: at most 40 small letters, digits and `-`",
        examples=["warehouse"],
    )
    bootstrap_servers: str = Field(
        description="`host:port,…` of its brokers", examples=["kafka-1:9092,kafka-2:9092"]
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not _CLUSTER.fullmatch(value):
            raise ValueError(f"found {value!r}, expected at most 40 small letters, digits and '-'")
        return value

    @field_validator("bootstrap_servers")
    @classmethod
    def _check_servers(cls, value: str) -> str:
        for address in value.split(","):
            split_address(address.strip())
        return value


class MonitorSection(BaseModel):
    """The section `monitor:` of configs/millrace.yaml.

    Durations are texts such as `2s` or `90d`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: str = Field(
        default="127.0.0.1:8090",
        description="the address of the page, its API and `/metrics`. Beyond the loopback it needs"
        " `network.open: [page]` and `login`",
        examples=["127.0.0.1:8190"],
    )
    refresh: Duration = Field(
        default="2s",
        description="how often the monitor asks brokers and parts, 200ms to 60s",
        examples=["5s"],
    )
    retain: Duration = Field(
        default="90d",
        description="how long the monitor keeps its history",
        examples=["30d"],
    )
    messages: bool = Field(
        default=True,
        description="true: the page can show records of topics, and lines of files in `watched/`",
        examples=[False],
    )
    admin: bool = Field(
        default=False,
        description="true: the page may change topics, groups and leaders; the user needs the"
        " token in `data/secrets/monitor/admin`, or with `login` the role `operator`",
        examples=[True],
    )
    login: Literal["users", "proxy"] | None = Field(
        default=None,
        description="`users`: the page and its API need a person that `millrace user add --page`"
        " made, or a token; `proxy`: a [proxy](../proxy.md#a-proxy-that-logs-people-in) logs people"
        " in; null: no login",
        examples=["users"],
    )
    proxies: tuple[str, ...] = Field(
        default=(),
        description="addresses or networks of the proxies whose `X-Forwarded-…` headers are"
        " believed; those of all other clients are dropped. It needs `login`",
        examples=[["127.0.0.1"]],
    )
    proxy_secret: SecretStr | None = Field(
        default=None,
        description="with `login: proxy`, the secret that the proxy sends in the header"
        " `Millrace-Proxy-Secret`, at least 20 characters",
        examples=["${file:data/secrets/proxy}"],
    )
    proxy_roles: dict[str, Literal["viewer", "operator"]] = Field(
        default_factory=dict,
        description="with `login: proxy`, the role of each group in `X-Forwarded-Groups`: `viewer`"
        " or `operator`. People without such a group are refused",
        examples=[{"mill-operators": "operator"}],
    )
    root_path: str = Field(
        default="",
        description="the path below which a [proxy](../proxy.md) serves the page",
        examples=["/millrace"],
    )
    hosts: tuple[str, ...] = Field(
        default=(),
        description="the host names under which a proxy serves the page, beside its own",
        examples=[["mill.example.org"]],
    )
    clusters: tuple[ClusterSection, ...] = Field(
        default=(),
        description=f"at most {CLUSTERS_MAX} other clusters, shown under `/clusters`",
        examples=[[{"name": "warehouse", "bootstrap_servers": "kafka-1:9092"}]],
    )
    alerts: AlertsSection = Field(
        default=AlertsSection(),
        description="the alert rules, and where alerts are sent: see [alerts](#alerts)",
        examples=[{"webhook": "https://chat.example.org/hooks/mill"}],
    )

    @field_validator("clusters")
    @classmethod
    def _check_clusters(cls, value: tuple[ClusterSection, ...]) -> tuple[ClusterSection, ...]:
        if len(value) > CLUSTERS_MAX:
            raise ValueError(f"found {len(value)} clusters, expected at most {CLUSTERS_MAX}")
        names = [one.name for one in value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"found the cluster {name!r} twice, expected a name for each")
        return value

    @field_validator("root_path")
    @classmethod
    def _check_root_path(cls, value: str) -> str:
        if not _ROOT_PATH.fullmatch(value):
            raise ValueError(
                f"found {value!r}, expected a path such as /millrace, without / at its end"
            )
        return value

    @field_validator("proxies")
    @classmethod
    def _check_proxies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            try:
                ipaddress.ip_network(text)
            except ValueError:
                raise ValueError(
                    f"found {text!r}, expected an address or a network such as 10.0.0.0/24"
                ) from None
        return value

    @field_validator("hosts")
    @classmethod
    def _check_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _HOST.fullmatch(name):
                raise ValueError(f"found {name!r}, expected a host's name without its port")
        return value

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        split_address(value)
        return value

    @field_validator("refresh", "retain")
    @classmethod
    def _check_duration(cls, value: str) -> str:
        if parse_duration_ms(value) <= 0:
            raise ValueError(f"found {value!r}, expected a duration above 0 such as 2s")
        return value

    @model_validator(mode="after")
    def _check_refresh(self) -> Self:
        if not 200 <= self.refresh_ms <= 60_000:
            raise ValueError(f"found refresh {self.refresh!r}, expected 200ms to 60s")
        return self

    @property
    def refresh_ms(self) -> int:
        """The time between two snapshots, in milliseconds."""
        return parse_duration_ms(self.refresh)

    @property
    def retain_ms(self) -> int:
        """The time for which history is kept, in milliseconds."""
        return parse_duration_ms(self.retain)


class InputSettings(BaseModel):
    """One input of the collector, from which a page says where files must be put."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paths: tuple[str, ...]
    topic: str


class MetricSettings(BaseModel):
    """A metric as the configuration describes it, so that a page can explain its numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    inputs: tuple[str, ...]
    key: tuple[str, ...] = ()
    measure: str
    value: str | None = None
    top: int | None = None


class MonitorUpdate(BaseModel):
    """The part of a configuration that a running monitor can apply: inputs and metrics."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    inputs: tuple[InputSettings, ...] = ()
    metrics: tuple[MetricSettings, ...] = ()


class MonitorReloadSettings(BaseModel):
    """A file that is watched for changes, and the command that prints its MonitorUpdate.

    `sha256` is that of the content from which the settings were made, in hexadecimal. A change is
    applied once the file was unchanged for `settled_ms`; 0 if it is only ever replaced as a whole.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: Path
    command: tuple[str, ...]
    sha256: str | None = None
    settled_ms: int = Field(default=500, ge=0)


class PreviewSettings(BaseModel):
    """The settings for detecting the format of a file.

    `folder` is the folder whose files can be previewed. `command` prints the detection of the file
    that is its last argument as JSON.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: Path
    command: tuple[str, ...]


class PageLogin(BaseModel):
    """The settings of the login: the folder with the files of people and tokens, and the proxies.

    `roles` has the role of each group that a proxy names.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    mode: Literal["users", "proxy"]
    folder: Path
    proxies: tuple[str, ...] = ()
    proxy_secret: SecretStr | None = None
    roles: dict[str, Literal["viewer", "operator"]] = {}


class PageTls(BaseModel):
    """The files of the page's certificate, in PEM format."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificate: Path
    key: Path


class MonitorSettings(MonitorUpdate):
    """The settings that the monitor's process reads from its descriptor.

    `parts` maps a part's name to the address of its `/status`, `host:port` after `http://`.
    `supervisor` is the path of the supervisor's socket; it is null in containers.
    Without `reload` the monitor keeps the inputs and metrics of its start. Without `preview` the
    page detects no formats.
    """

    part: str = "monitor"
    section: MonitorSection = MonitorSection()
    bootstrap_servers: str
    security: ClusterSecurity | None = None
    data_dir: str
    parts: dict[str, str]
    sinks: SinksSettings | None = None
    supervisor: str | None = None
    stream_group: str = "millrace-stream"
    token: str | None = None
    """The token that allows changes on the page; None switches changes off."""

    login: PageLogin | None = None
    """The login of people and scripts; None if the page needs none."""

    tls: PageTls | None = None
    """The certificate of the page; None if the page is served in the clear."""

    names: tuple[str, ...] = ()
    """The names that browsers dial, which the certificate must have."""

    own_socket: Path | None = None
    """The path of the socket on which the mill's own commands reach the monitor if the page needs a
    login."""

    page: str | None = None
    """The address of the page for people, if it differs from the address to listen on."""

    reload: MonitorReloadSettings | None = None
    preview: PreviewSettings | None = None

    @field_validator("parts")
    @classmethod
    def _check_parts(cls, value: dict[str, str]) -> dict[str, str]:
        for url in value.values():
            split_address(url.removeprefix("http://"))
        return value

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to listen on."""
        return split_address(self.section.listen)

    @property
    def entry(self) -> ClusterEntry:
        """The entry to the cluster."""
        return ClusterEntry(self.bootstrap_servers, self.security)
