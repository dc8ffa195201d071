"""A site below a path such as `/millrace`. Routes see the address without it, whether or not a
proxy has already removed it.

Links on pages begin with that path. Starlette's own `root_path` is not used, because a proxy that
removes the path would find no static file then.
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
