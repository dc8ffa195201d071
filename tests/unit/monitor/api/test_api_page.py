"""docs/api.md lists every path of the API, its parameters and the columns of its rows.

With `MILLRACE_BLESS=1` this test writes the list again.
"""

import os

from fastapi.testclient import TestClient

from appliance.mill.home import CODE
from tests.harness.api_page import table
from tests.unit.monitor.readings import GROUP, row
from tests.unit.monitor.test_http import site, some_reading

PAGE = CODE / "docs" / "api.md"
BEGIN = "<!-- from OpenAPI -->\n"
# An existing name for each placeholder of a path. The page shows no columns for a path that the
# scripted source has no rows for.
NAMES = {"{group_id}": GROUP, "{name}": row(0).topic}
# The collector defines these rows. The scripted source has only a few of their columns.
NOT_OURS = "/api/v1/collector"


def columns_of(client: TestClient, path: str) -> list[str]:
    if path == NOT_OURS:
        return []
    for part, name in NAMES.items():
        path = path.replace(part, name)
    answer = client.get(path)
    rows = answer.json()["data"] if answer.status_code == 200 else []
    return list(dict.fromkeys(key for row in rows for key in row))


def test_the_page_is_what_the_api_says_of_itself() -> None:
    head, begin, _ = PAGE.read_text().partition(BEGIN)
    with site(some_reading()) as client:
        made = table(client.get("/api/openapi.json").json(), lambda path: columns_of(client, path))
    wanted = head + BEGIN + "\n" + made
    if os.environ.get("MILLRACE_BLESS"):
        PAGE.write_text(wanted)
    assert begin, "the marker is gone"
    assert PAGE.read_text() == wanted, "MILLRACE_BLESS=1 writes it again"


def test_the_page_names_the_codes_that_there_are() -> None:
    with site(some_reading()) as client:
        codes = {
            client.get("/api/v1/topics/none").status_code,
            client.get("/api/v1/lag?per=nothing").status_code,
            client.get("/api/v1/lag", headers={"Host": "elsewhere.example"}).status_code,
        }
    head = PAGE.read_text().partition(BEGIN)[0]
    assert codes == {404, 422, 421}
    assert all(str(code) in head for code in codes)
