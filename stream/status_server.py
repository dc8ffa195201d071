"""Serves `/healthz`, `/status` and `/metrics` from a separate thread."""

import asyncio
import threading

from protocol.status_http import StatusServer
from stream.config.settings import StatusSettings
from stream.exposition import prometheus
from stream.state import StreamState

START_TIMEOUT_S = 10.0


class StatusThread:
    """Serves the state until `close` is called. After `start`, `port` is the actual port."""

    def __init__(self, settings: StatusSettings, state: StreamState) -> None:
        self.port = settings.port
        self._server = StatusServer(
            settings.host, settings.port, state.snapshot, lambda: prometheus(state.snapshot())
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="status", daemon=True)

    def start(self) -> None:
        """Start to serve; raises OSError if the address is not available."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(START_TIMEOUT_S)
        self.port = self._server.port

    def close(self) -> None:
        """Stop serving."""
        closing = asyncio.run_coroutine_threadsafe(self._server.close(), self._loop)
        closing.result(START_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT_S)
