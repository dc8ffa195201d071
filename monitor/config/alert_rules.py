"""The section `monitor.alerts` of the configuration: the rules, and the webhook."""

import re
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from monitor.state.alert import FORMS, Kind, Rule, Unit
from protocol.units import DURATION_PATTERN, parse_duration_ms, parse_size_bytes

RULES_MAX = 100
NAME_CHARACTERS_MAX = 60
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")


def _as_text(value: object) -> object:
    """Return a bare number as text, so that a limit is always text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


Limit = Annotated[str, BeforeValidator(_as_text), WithJsonSchema({"type": ["string", "number"]})]
Duration = Annotated[
    str, WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "format": "duration"})
]
"""A duration as text; the validators of its keys parse it."""


def parse_limit(kind: Kind, value: str) -> tuple[float, Unit]:
    """Return the limit and its unit. Raise ValueError with what was expected."""
    form = FORMS[kind]
    expected = f"a limit such as {form.example}"
    found = ValueError(f"found {value!r}, expected {expected}")
    percent = _PERCENT.fullmatch(value)
    try:
        if Unit.SHARE in form.units and percent is not None:
            limit, unit = float(percent[1]) / 100, Unit.SHARE
        elif Unit.MILLISECONDS in form.units:
            limit, unit = float(parse_duration_ms(value)), Unit.MILLISECONDS
        elif Unit.BYTES in form.units:
            limit, unit = float(parse_size_bytes(value)), Unit.BYTES
        elif Unit.OFFSETS in form.units:
            limit, unit = float(int(value)), Unit.OFFSETS
        else:
            raise found
    except (ValueError, OverflowError) as error:
        raise found from error
    if limit <= 0 or (unit is Unit.SHARE and limit >= 1):
        raise found
    return limit, unit


class RuleSection(BaseModel):
    """One entry of `monitor.alerts.rules`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        description="the rule's name on the page, in messages and in the log: letters, digits,"
        " `.`, `_` and `-`",
        examples=["export-lags"],
    )
    on: Literal[
        "part_down",
        "part_stuck",
        "lag",
        "time_lag",
        "disk_free",
        "unparsed_share",
        "file_stuck",
        "move_stands",
        "no_room_to_copy",
        "throttle_left",
        "racks_doubled",
        "two_voters",
        "level_not_finalised",
        "collector_silent",
        "collector_skew",
    ] = Field(
        description="what is watched, see [alerts](#alerts)",
        examples=["lag"],
    )
    above: Limit | None = Field(
        default=None,
        description="the limit of `lag`, `time_lag`, `unparsed_share`, `move_stands`,"
        " `level_not_finalised` and `collector_skew`",
        examples=[100000, "10m", "5%"],
    )
    below: Limit | None = Field(
        default=None,
        description="the limit of `disk_free`: a share or a size",
        examples=["20GiB", "5%"],
    )
    for_: Duration = Field(
        default="1m",
        alias="for",
        description="how long a value must be past its limit until the alert opens",
        examples=["5m"],
    )
    clear: Duration = Field(
        default="1m",
        description="how long a value must be within its limit, by at least a tenth, until the"
        " alert closes",
        examples=["5m"],
    )
    of: tuple[str, ...] = Field(
        default=("*",),
        description="the names of the groups, parts, disks, topics, brokers or collectors, with `*`"
        " and `?`",
        examples=[["export*"]],
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value) or len(value) > NAME_CHARACTERS_MAX:
            raise ValueError(
                f"found {value!r}, expected at most {NAME_CHARACTERS_MAX} letters, digits, '.',"
                " '_' and '-'"
            )
        return value

    @field_validator("for_", "clear")
    @classmethod
    def _check_duration(cls, value: str) -> str:
        parse_duration_ms(value)
        return value

    @field_validator("of")
    @classmethod
    def _check_of(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError('found an empty list, expected patterns such as ["*"]')
        return value

    @model_validator(mode="after")
    def _check_limit(self) -> Self:
        key = FORMS[Kind(self.on)].key
        for name, value in (("above", self.above), ("below", self.below)):
            if name == key and value is None:
                example = FORMS[Kind(self.on)].example
                raise ValueError(f"{name}: found nothing, expected a limit such as {example}")
            if name != key and value is not None:
                wanted = f"{key} for {self.on}" if key else f"no limit for {self.on}"
                raise ValueError(f"{name}: found {value!r}, expected {wanted}")
            if name == key and value is not None:
                try:
                    parse_limit(Kind(self.on), value)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from error
        return self

    def rule(self) -> Rule:
        """Return the rule in the form that `alerts.core` compares with measurements."""
        kind = Kind(self.on)
        value = self.below if FORMS[kind].key == "below" else self.above
        # A flag is 0 or 1. A limit of 0.5 lies between the two, even after the hysteresis is added.
        limit, unit = (0.5, Unit.FLAG) if value is None else parse_limit(kind, value)
        return Rule(
            self.name, kind, limit, unit,
            parse_duration_ms(self.for_), parse_duration_ms(self.clear), self.of,
        )  # fmt: skip


def _shipped(name: str, on: str, **keys: object) -> RuleSection:
    return RuleSection.model_validate({"name": name, "on": on, **keys})


SHIPPED_RULES = (
    _shipped("part-down", "part_down", **{"for": "30s"}),
    _shipped("part-stuck", "part_stuck", **{"for": "0s"}),
    _shipped("lines-wait", "time_lag", above="10m", of=["millrace-stream"]),
    _shipped("disk-full", "disk_free", below="5%"),
    _shipped("not-parsed", "unparsed_share", above="5%", **{"for": "2m"}),
    _shipped("file-stuck", "file_stuck", **{"for": "10m"}),
    _shipped("move-stands", "move_stands", above="5m", **{"for": "0s"}),
    _shipped("no-room-to-copy", "no_room_to_copy"),
    _shipped("throttle-left", "throttle_left", **{"for": "10m"}),
    _shipped("racks-doubled", "racks_doubled", **{"for": "10m"}),
    _shipped("two-voters", "two_voters", **{"for": "5m"}),
    _shipped("level-not-finalised", "level_not_finalised", above="7d", **{"for": "0s"}),
    _shipped("collector-silent", "collector_silent", **{"for": "0s"}),
    _shipped("collector-clock", "collector_skew", above="1m"),
)
"""The rules that are used if the configuration file names none."""


class AlertsSection(BaseModel):
    """The section `monitor.alerts`: the rules, and the webhook to which messages are sent."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    webhook: SecretStr | None = Field(
        default=None,
        description="the address to which messages are posted as JSON. null: none are sent",
        examples=["https://chat.example.org/hooks/mill", "${file:data/secrets/webhook}"],
    )
    token: SecretStr | None = Field(
        default=None,
        description="sent as a bearer token",
        examples=["${file:data/secrets/webhook-token}"],
    )
    timeout: Duration = Field(
        default="10s",
        description="the time for one message and its answer, 1s to 60s",
        examples=["30s"],
    )
    repeat: Duration = Field(
        default="4h",
        description="an alert that is still open is sent again after this time, at least 1m",
        examples=["1d"],
    )
    rules: tuple[RuleSection, ...] = Field(
        default=SHIPPED_RULES,
        description="the rules, each with the keys below. Your list replaces the shipped rules;"
        " `[]` switches all off",
        examples=[[{"name": "export-lags", "on": "lag", "above": 100000, "of": ["export*"]}]],
    )

    @field_validator("webhook")
    @classmethod
    def _check_webhook(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        expected = "expected an address such as https://host/path"
        try:
            parts = urlsplit(value.get_secret_value())
            is_good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_good = False
        # The address can be a secret, so the error does not quote it.
        if not is_good or not value.get_secret_value().isprintable():
            raise ValueError(f"found a value that is not shown, {expected}")
        if " " in value.get_secret_value() or not value.get_secret_value().isascii():
            raise ValueError(f"found a value with blanks or letters beyond ASCII, {expected}")
        if parts.username is not None:
            raise ValueError("found a user in the address, expected a token in `token`")
        return value

    @field_validator("token")
    @classmethod
    def _check_token(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not re.fullmatch(r"[!-~]+", value.get_secret_value()):
            raise ValueError("found a value that is not shown, expected printable ASCII, no blanks")
        return value

    @field_validator("timeout")
    @classmethod
    def _check_timeout(cls, value: str) -> str:
        if not 1_000 <= parse_duration_ms(value) <= 60_000:
            raise ValueError(f"found {value!r}, expected 1s to 60s")
        return value

    @field_validator("repeat")
    @classmethod
    def _check_repeat(cls, value: str) -> str:
        if parse_duration_ms(value) < 60_000:
            raise ValueError(f"found {value!r}, expected at least 1m")
        return value

    @field_validator("rules")
    @classmethod
    def _check_rules(cls, value: tuple[RuleSection, ...]) -> tuple[RuleSection, ...]:
        if len(value) > RULES_MAX:
            raise ValueError(f"found {len(value)} rules, expected at most {RULES_MAX}")
        names = [one.name for one in value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"found the rule {name!r} twice, expected a name for each")
        return value

    @property
    def timeout_s(self) -> float:
        """The time limit of one message and its answer, in seconds."""
        return parse_duration_ms(self.timeout) / 1000

    @property
    def repeat_ms(self) -> int:
        """The time after which an open alert is sent again, in milliseconds."""
        return parse_duration_ms(self.repeat)

    def all_rules(self) -> tuple[Rule, ...]:
        """Return the rules in the form that `alerts.core` compares with measurements."""
        return tuple(one.rule() for one in self.rules)
