"""The ids and secrets of this machine's parts: the main host makes them, other hosts check them."""

from appliance.config.model import MillConfig
from appliance.mill.home import Home
from appliance.mill.init import (
    ENTRY_PASSWORD,
    LOGIN_SECRET,
    CreatedSecrets,
    InitError,
    initialise,
)
from appliance.mill.parts import BROKER_PREFIX, Placement, has_other_parts, local_broker_ids


def initialise_mill(home: Home, config: MillConfig, placement: Placement) -> CreatedSecrets:
    """Create the ids and secrets of this machine's parts that are missing.

    If the brokers are on several hosts, only the main host makes secrets: all other hosts get
    theirs from `join`. Raises InitError if those of such a host are missing.
    """
    local = local_broker_ids(config, placement)
    if has_other_parts(config, placement):
        return initialise(home, local, has_entry_user=config.cluster.hosts is not None)
    for number in local:
        part = f"{BROKER_PREFIX}{number}"
        for name in (f"{part}/cluster_id", f"{part}/{LOGIN_SECRET}", ENTRY_PASSWORD):
            if not (home.secrets / name).exists():
                raise InitError(
                    f"data/secrets/{name} is missing: join this host again with the join file of"
                    f" broker {number}"
                    f" (`{home.writes(f'enrol broker {number}', f'broker-{number}.join')}` on the"
                    " main host writes it)"
                )
    return CreatedSecrets(())
