"""A site below a path: whether or not a proxy has left that path out, routes see what lies below.

Links on pages begin with the path themselves. Starlette's own `root_path` is not used: a proxy that
leaves the path out would find no static file then.
"""

from starlette.types import ASGIApp, Receive, Scope, Send


class BelowRoot:
    """Takes `root`, such as `/millrace`, off the addresses that begin with it."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self._app = app
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on."""
        path, root = scope.get("path", ""), self._root
        if root and (path == root or path.startswith(f"{root}/")):
            raw = scope.get("raw_path") or path.encode()
            scope = {
                **scope,
                "path": path.removeprefix(root) or "/",
                "raw_path": raw.removeprefix(root.encode()) or b"/",
            }
        await self._app(scope, receive, send)
