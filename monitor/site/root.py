"""Serves the site below a path such as `/millrace`.

Routes get the path without this prefix, even if a proxy has not removed it. Links on pages begin
with the prefix. Starlette's own `root_path` is not used, because behind a proxy that removes the
prefix no static file would be found.
"""

from starlette.types import ASGIApp, Receive, Scope, Send


class BelowRoot:
    """Removes `root`, such as `/millrace`, from the addresses that begin with it."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self._app = app
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Remove `root` from the address of a request and pass the request to the application."""
        path, root = scope.get("path", ""), self._root
        if root and (path == root or path.startswith(f"{root}/")):
            raw = scope.get("raw_path") or path.encode()
            scope = {
                **scope,
                "path": path.removeprefix(root) or "/",
                "raw_path": raw.removeprefix(root.encode()) or b"/",
            }
        await self._app(scope, receive, send)
