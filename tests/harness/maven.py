"""Jars from Maven, downloaded once and kept in `.cache/<name>/lib`."""

import shutil
from pathlib import Path

from tests.harness import ROOT
from tests.harness.fetched import fetch, need_tools

LOG4J_VERSION = "2.25.4"
FETCH_DEADLINE_S = 600.0

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>millrace</groupId>
  <artifactId>jars-for-tests</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def maven_jars(name: str, wanted: dict[str, str], *, tools: tuple[str, ...], what: str) -> Path:
    """Return the folder of these jars and their dependencies. `wanted` maps `group:artifact` to a
    version.

    Skips the test with the reason if one of the `tools` is missing or Maven cannot download.
    """
    need_tools((*tools, "mvn"), what)
    home = ROOT / ".cache" / name
    jars = home / "lib"
    if jars.is_dir():
        return jars
    home.mkdir(parents=True, exist_ok=True)
    dependencies = "\n".join(_dependency(one, version) for one, version in wanted.items())
    (home / "pom.xml").write_text(_POM.format(dependencies=dependencies))
    arriving = home / "arriving"
    shutil.rmtree(arriving, ignore_errors=True)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={arriving}"]
    fetch(command, home, what, FETCH_DEADLINE_S)
    # Rename the folder only when it is complete, so an interrupted download is never used.
    arriving.rename(jars)
    return jars


def _dependency(name: str, version: str) -> str:
    group, artifact = name.split(":")
    return (
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
    )
