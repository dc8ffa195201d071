"""Reads the addresses of bootstrap servers."""

DEFAULT_PORT = 9092


def parse_bootstrap_servers(text: str) -> list[tuple[str, int]]:
    """Return hosts and ports of "host:port,[::1]:port,host". Raises ValueError with the reason."""
    addresses = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ValueError(f"found {part!r}, expected host:port")
        addresses.append((host, int(port)))
    if not addresses:
        raise ValueError(f"found {text!r}, expected host:port, or several separated by commas")
    return addresses
