"""A site below a path: routes see the rest of the path, whether or not a proxy has removed it.

Links on pages begin with the path. Starlette's own `root_path` is not used, because a proxy that
removes the path would find no static file then.
"""

from starlette.types import ASGIApp, Receive, Scope, Send


class BelowRoot:
    """Removes `root`, such as `/millrace`, from the addresses that begin with it."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self._app = app
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        path, root = scope.get("path", ""), self._root
        if root and (path == root or path.startswith(f"{root}/")):
            raw = scope.get("raw_path") or path.encode()
            scope = {
                **scope,
                "path": path.removeprefix(root) or "/",
                "raw_path": raw.removeprefix(root.encode()) or b"/",
            }
        await self._app(scope, receive, send)
