"""The configuration file of a host that only collects, as `join` writes it.

This module is pure.
"""

from appliance.enrol.join_file import JoinFile
from protocol.units import format_duration_ms

CA_FILE = "ca.pem"
PASSWORD_FILE = "data/secrets/collector/password"

EXAMPLE_FOLDER = "watched/access"
"""The folder of the example input. `join` makes it."""

_TEXT = """\
# Written by `millrace join`: this host only collects, for the mill of cluster {cluster_id}.
cluster:
  bootstrap_servers: "{servers}"
  security:
{ca}    user: {user}
    password: "${{file:{password}}}"
    mechanism: {mechanism}
collector:
  instance: {name}
  group: {group}
  commit_interval: {interval}
  # The files to read: paths of this host, such as /var/log/nginx/access.log*, or below this folder.
  inputs:
    - {{paths: ["{folder}/**"], topic: {topic}}}
stream: {{metrics: []}}
sinks: {{mysql: null, redis: null}}
"""


def config_text(join: JoinFile) -> str:
    """Return the configuration file for a host with this join file."""
    return _TEXT.format(
        cluster_id=join.cluster_id,
        servers=",".join(join.addresses),
        ca=f"    ca: {CA_FILE}\n" if join.ca is not None else "",
        user=join.user,
        password=PASSWORD_FILE,
        mechanism=join.mechanism.sasl_name,
        name=_quoted(join.name),
        group=_quoted(join.group),
        interval=format_duration_ms(join.commit_interval_ms),
        folder=EXAMPLE_FOLDER,
        topic=_quoted(join.topic),
    )


def _quoted(text: str) -> str:
    """Return a text in quotes, because a name such as 7 or no is not a text in YAML."""
    return f'"{text}"'
