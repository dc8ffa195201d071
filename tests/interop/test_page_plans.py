"""Spark plans the YAML on the pages: every expression, pattern and metric is valid."""

from pathlib import Path

import pytest

from stream.plan_check import check_configuration
from tests.harness.fragments import page_configs
from tests.harness.pages import blocks_of, pages
from tests.interop.stream_spark import spark

pytestmark = [pytest.mark.live, pytest.mark.slow]

PAGES = [page for page in pages() if any(one.language == "yaml" for one in blocks_of(page))]


@pytest.mark.parametrize("page", PAGES)
def test_spark_plans_the_yaml_of_a_page(page: str, tmp_path: Path) -> None:
    *_, (block, loaded) = page_configs(page, tmp_path)
    found = check_configuration(spark(), loaded.config.stream)
    assert [fault.to_json() for fault in found] == [], f"{page} up to line {block.line}"
