"""Limits on reading messages while brokers do not answer."""

import asyncio

import pytest

from monitor.asking import browse
from monitor.asking.browse import AT_ONCE_MAX, BrowseFailed, Browser
from monitor.asking.messages import Wanted
from protocol.security.cluster_security import ClusterEntry


def test_a_few_ask_at_once_and_none_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "TIMEOUT_S", 0.5)

    async def story() -> list[int]:
        heard = 0
        heard_at_ends = []

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal heard
            heard += 1
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            browser = Browser(ClusterEntry(f"127.0.0.1:{port}"))
            readers = [
                asyncio.create_task(browser.read(Wanted("t"), (0,))) for _ in range(AT_ONCE_MAX + 3)
            ]
            for one in readers:
                one.add_done_callback(lambda _: heard_at_ends.append(heard))
            for failure in await asyncio.gather(*readers, return_exceptions=True):
                assert isinstance(failure, BrowseFailed)
                assert "nothing was read within" in str(failure)
            # A reader that failed must release its place, so that the next reader can start.
            with pytest.raises(BrowseFailed):
                await browser.read(Wanted("t"), (0,))
        return heard_at_ends

    # At most AT_ONCE_MAX readers reach the broker until the first one gives up. Then others may
    # follow.
    assert 0 < asyncio.run(story())[0] <= AT_ONCE_MAX
