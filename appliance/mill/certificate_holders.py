"""The parts that have a certificate of the mill's CA, and the names in their certificates.

This module makes no files; `certificates` does.
"""

from dataclasses import dataclass
from enum import StrEnum

from appliance.config.model import MillConfig
from appliance.config.network_section import SERVERS
from appliance.mill.home import Home
from appliance.mill.hosts import place
from appliance.mill.parts import (
    BROKER_PREFIX,
    LOOPBACK,
    MONITOR,
    broker_ids,
    has_other_parts,
    local_broker_ids,
)

OWN_NAMES = (LOOPBACK, "localhost")
"""The names of a part on its own machine, which every certificate has."""


class CertificateUse(StrEnum):
    """The uses of a certificate. Only a broker's is valid for connections to other parts too."""

    BROKER = "broker"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class Holder:
    """A part with a certificate of the mill's CA. `names` are the names that its clients dial."""

    part: str
    names: tuple[str, ...]
    use: CertificateUse = CertificateUse.SERVER

    @property
    def all_names(self) -> tuple[str, ...]:
        """All names in the certificate. The part's name is among them, because the other parts in
        containers dial it, and because brokers recognise each other by it."""
        return tuple(dict.fromkeys((*self.names, *OWN_NAMES, self.part)))


def holders_of(config: MillConfig) -> tuple[Holder, ...]:
    """Return the parts that can have a certificate of the mill's CA, on all hosts.

    The brokers are among them even if they do not need one yet, because `cert renew` makes theirs
    before the mill is opened. Brokers on several hosts show each other a certificate of the mill's
    CA, also if clients see the user's own.
    """
    network, hosts = config.network, config.cluster.hosts
    names, has_own = network.names, network.tls.certificate is not None
    has_page = network.opens_page and not has_own
    return (
        *(
            Holder(
                f"{BROKER_PREFIX}{number}",
                (*([] if hosts is None else [hosts[number]]), *names),
                CertificateUse.BROKER,
            )
            for number in (() if has_own and hosts is None else broker_ids(config))
        ),
        *([Holder(MONITOR, names)] if has_page else []),
        *(Holder(one, names) for one in SERVERS if one in network.open),
    )


def local_holders(home: Home, config: MillConfig) -> tuple[Holder, ...]:
    """Return those of the holders that run on this machine."""
    placement = place(home, config)
    brokers = {f"{BROKER_PREFIX}{number}" for number in local_broker_ids(config, placement)}
    has_others = has_other_parts(config, placement)
    return tuple(
        one
        for one in holders_of(config)
        if (one.part in brokers if one.use is CertificateUse.BROKER else has_others)
    )
