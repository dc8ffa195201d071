"""Encodes and decodes what precedes every body: the size of the frame and the header.

This module is pure. From an API's first flexible version on, a request header has tagged fields,
but its client id keeps the old two-byte length. A response header has tagged fields too.
ApiVersions is the exception, because a client must be able to read it before it knows the broker's
versions.
"""

from collections.abc import Sequence
from struct import Struct as Packed
from struct import error as StructError
from typing import Any

from protocol.errors import BadLength, BadString, BufferUnderflow, EncodeError
from protocol.messages.api import ApiKey
from protocol.wire.primitives import Buffer, skip_tags
from protocol.wire.schema import Message, Struct, int16, int32, join_chunks, string

_SIZE = Packed(">i")
_REQUEST_START = Packed(">hhih")
_SIZE_AND_CORRELATION = Packed(">ii")

_FLEXIBLE_FROM = {int(key): key.flexible_from for key in ApiKey}
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class RequestHeader(Struct):
    """The header of a request."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(nullable=0, default=None)


def decode_request_header(frame: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """Decode a request header from a frame without its size. Return it and the start of the body.

    A request with an unknown API key is read as not flexible. Then only key and version are valid.
    """
    try:
        key, version, correlation_id, length = _REQUEST_START.unpack_from(frame, position)
    except StructError as error:
        raise BufferUnderflow(f"request header ends early: {error}") from None
    position += _REQUEST_START.size
    client_id = None
    if length >= 0:
        end = position + length
        if end > len(frame):
            left = len(frame) - position
            raise BufferUnderflow(f"the client id has {length} bytes, but {left} are left")
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError as error:
            raise BadString(f"client id: {error}") from None
        position = end
    elif length != -1:
        raise BadLength(f"client id has length {length}")
    if version >= _FLEXIBLE_FROM.get(key, version + 1):
        position = _skip_tags(frame, position)
    header = RequestHeader(
        request_api_key=key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return header, position


def decode_response_header(
    frame: Buffer, api_key: int, version: int, position: int = 0
) -> tuple[int, int]:
    """Decode a response header from a frame without its size: correlation id, start of the body."""
    try:
        (correlation_id,) = _SIZE.unpack_from(frame, position)
    except StructError as error:
        raise BufferUnderflow(f"response header ends early: {error}") from None
    position += _SIZE.size
    if has_response_tags(api_key, version):
        position = _skip_tags(frame, position)
    return correlation_id, position


def has_response_tags(api_key: int, version: int) -> bool:
    """Return whether the response header of this API version has tagged fields."""
    return api_key != _API_VERSIONS and version >= _FLEXIBLE_FROM[api_key]


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return a whole request frame: size, header, body."""
    return _join(_request_parts(message, version, correlation_id, client_id), message)


def encode_request_chunks(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> list[Any]:
    """Return a whole request frame as chunks, so that large `records` are not copied."""
    return join_chunks(_request_parts(message, version, correlation_id, client_id))


def encode_response(message: Message, version: int, correlation_id: int, api_key: int) -> bytes:
    """Return a whole response frame: size, header, body."""
    return _join(_response_parts(message, version, correlation_id, api_key), message)


def encode_response_chunks(
    message: Message, version: int, correlation_id: int, api_key: int
) -> list[Any]:
    """Return a whole response frame as chunks, so that file regions and large `records` are not
    copied."""
    return join_chunks(_response_parts(message, version, correlation_id, api_key))


def _request_parts(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> list[Any]:
    parts = message.encode_parts(version)
    client = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(client)
    start = _REQUEST_START.pack(message.api_key, version, correlation_id, length)
    tags = b"\0" if version >= message.flexible_from else b""
    size = len(start) + len(client) + len(tags) + sum(map(len, parts))
    parts.insert(0, _SIZE.pack(size) + start + client + tags)
    return parts


def _response_parts(message: Message, version: int, correlation_id: int, api_key: int) -> list[Any]:
    parts = message.encode_parts(version)
    tags = b"\0" if has_response_tags(api_key, version) else b""
    size = 4 + len(tags) + sum(map(len, parts))
    parts.insert(0, _SIZE_AND_CORRELATION.pack(size, correlation_id) + tags)
    return parts


def _join(parts: Sequence[Any], message: Message) -> bytes:
    try:
        return b"".join(parts)
    except TypeError as error:
        raise EncodeError(f"{type(message).__name__}: {error}") from None


def _skip_tags(frame: Buffer, position: int) -> int:
    try:
        return skip_tags(frame, position, len(frame))
    except IndexError:
        raise BufferUnderflow("the header ends inside its tagged fields") from None
