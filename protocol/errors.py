"""Errors on Kafka's wire: the protocol's error codes and our exceptions.

Three kinds, by whose fault it is:

    ApiError                a refusal by the rules; carries an ErrorCode and goes into an answer
    WireError               the peer sent malformed bytes; the connection is closed
      BufferUnderflow         a field ends beyond the bytes there are
      FrameTooLarge           an announced frame is negative or above the limit
      BadVarint               too long, overlong or overflowing variable-length number
      BadString               not UTF-8
      BadLength               a length or count that the bytes left cannot hold
      BadTags                 too many tagged fields, or one whose size does not fit its content
      NullNotAllowed          null where the schema forbids it
      UnknownVersion          an unsupported API key or version
      CorruptBatch            an inconsistent record batch
        UnsupportedMagic        a batch of format 0 or 1
        UnsupportedCodec        compression bits 5 to 7
        DecompressionFailed     the payload cannot be read by its codec
        DecompressionTooLarge   the payload would exceed the output limit
    EncodeError             our own bug: a message that its version cannot carry
"""

from enum import IntEnum


class WireError(Exception):
    """The peer sent bytes that break the protocol. The connection is closed with one warning."""


class BufferUnderflow(WireError):
    """A field would end after the last received byte."""


class FrameTooLarge(WireError):
    """A frame declares a negative size or a size above the limit.

    No memory was allocated for it.
    """


class BadVarint(WireError):
    """A variable-length number is longer than its type allows, not in its shortest form, or too
    large."""


class BadString(WireError):
    """A string is not valid UTF-8."""


class BadLength(WireError):
    """A length or count is negative, above its limit, or more than the remaining bytes can hold."""


class BadTags(WireError):
    """There are too many tagged fields, or a tagged field's size contradicts its content."""


class NullNotAllowed(WireError):
    """A field is null although the schema of this version does not allow null."""


class UnknownVersion(WireError):
    """The version of a request, or its API key, is not supported here."""


class CorruptBatch(WireError):
    """A record batch whose bytes contradict its header, its CRC or the format."""


class UnsupportedMagic(CorruptBatch):
    """A batch has message format 0 or 1, which Kafka 4 refuses too."""


class UnsupportedCodec(CorruptBatch):
    """The compression bits of a batch name no codec."""


class DecompressionFailed(CorruptBatch):
    """The codec cannot decompress the bytes."""


class DecompressionTooLarge(CorruptBatch):
    """The decompressed bytes would exceed the output limit."""


class EncodeError(Exception):
    """A message cannot be encoded in the requested version. The cause is a bug in Millrace, never
    bad input, unless the version depends on the receiver (`broker/cluster/orders`).
    """


class ErrorCode(IntEnum):
    """Kafka's error codes, and what a client can do about each of them.

    `retriable`: the same request can succeed later. `refreshes_metadata`: retriable, and the client
    must refresh its metadata first. `description`: one line for people. It has Kafka's own words if
    scripts search for them.
    """

    retriable: bool
    refreshes_metadata: bool
    description: str

    def __new__(cls, code: int, kind: str = "", description: str = "") -> "ErrorCode":
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = kind in ("R", "M")
        member.refreshes_metadata = kind == "M"
        member.description = description
        return member

    @classmethod
    def of(cls, code: int) -> "ErrorCode":
        """Return the member for a code from the wire; UNKNOWN_SERVER_ERROR for an unknown code."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR

    # The second value: "" not retriable, "R" retriable, "M" retriable after a metadata refresh.
    UNKNOWN_SERVER_ERROR = -1, "", "the server failed in a way no other code describes"
    NONE = 0, "", "no error"
    OFFSET_OUT_OF_RANGE = 1, "", "the offset lies outside the partition's log"
    CORRUPT_MESSAGE = 2, "R", "a record batch failed its CRC, size or format check"
    UNKNOWN_TOPIC_OR_PARTITION = 3, "M", "This server does not host this topic-partition."
    INVALID_FETCH_SIZE = 4, "", "the requested fetch size is invalid"
    LEADER_NOT_AVAILABLE = 5, "M", "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, "M", "this broker is not the leader, or not a replica"
    REQUEST_TIMED_OUT = 7, "R", "the request was not finished within its time"
    BROKER_NOT_AVAILABLE = 8, "", "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, "M", "the replica is not available here"
    MESSAGE_TOO_LARGE = 10, "", "a record batch is larger than the topic allows"
    STALE_CONTROLLER_EPOCH = 11, "", "the request comes from an earlier controller"
    OFFSET_METADATA_TOO_LARGE = 12, "", "the metadata text of a committed offset is too long"
    NETWORK_EXCEPTION = 13, "M", "the connection broke before the answer came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, "R", "the coordinator is still loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, "R", "there is no coordinator at the moment"
    NOT_COORDINATOR = 16, "R", "this broker is not the coordinator asked for"
    INVALID_TOPIC_EXCEPTION = 17, "", "the topic's name is invalid or not open to this request"
    RECORD_LIST_TOO_LARGE = 18, "", "a record batch is larger than a log segment"
    NOT_ENOUGH_REPLICAS = 19, "R", "fewer in-sync replicas than required; nothing was written"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "R",
        "written, but to fewer in-sync replicas than required",
    )
    INVALID_REQUIRED_ACKS = 21, "", "required acks is none of -1, 0, 1"
    ILLEGAL_GENERATION = 22, "", "the group is in another generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, "", "the member shares no protocol with the group"
    INVALID_GROUP_ID = 24, "", "the group id is invalid"
    UNKNOWN_MEMBER_ID = 25, "", "the group does not know this member"
    INVALID_SESSION_TIMEOUT = 26, "", "the session timeout is outside the broker's bounds"
    REBALANCE_IN_PROGRESS = 27, "", "the group is rebalancing; join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, "", "the commit is too large to be stored"
    TOPIC_AUTHORIZATION_FAILED = 29, "", "not authorised for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, "", "not authorised for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, "", "not authorised for the cluster"
    INVALID_TIMESTAMP = 32, "", "a record's timestamp is out of bounds"
    UNSUPPORTED_SASL_MECHANISM = 33, "", "the SASL mechanism is not offered"
    ILLEGAL_SASL_STATE = 34, "", "the request does not fit the state of authentication"
    UNSUPPORTED_VERSION = 35, "", "the version of this API is not supported"
    TOPIC_ALREADY_EXISTS = 36, "", "a topic of this name exists already"
    INVALID_PARTITIONS = 37, "", "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = 38, "", "the replication factor is invalid or too high"
    INVALID_REPLICA_ASSIGNMENT = 39, "", "the replica assignment is invalid"
    INVALID_CONFIG = 40, "", "a setting is unknown or its value invalid"
    NOT_CONTROLLER = 41, "R", "this broker is not the controller"
    INVALID_REQUEST = 42, "", "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "", "the message format does not allow this request"
    POLICY_VIOLATION = 44, "", "the request breaks a policy of the cluster"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "", "the producer's sequence number does not follow the last"
    DUPLICATE_SEQUENCE_NUMBER = 46, "", "the producer's sequence number was used before"
    INVALID_PRODUCER_EPOCH = 47, "", "the producer's epoch is older than the one known here"
    INVALID_TXN_STATE = 48, "", "the transaction's state does not allow this"
    INVALID_PRODUCER_ID_MAPPING = 49, "", "the producer id does not belong to the transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, "", "the transaction timeout is above the broker's limit"
    CONCURRENT_TRANSACTIONS = 51, "R", "the last transaction of this id is still being finished"
    TRANSACTION_COORDINATOR_FENCED = 52, "", "the marker comes from an earlier coordinator"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "", "not authorised for the transactional id"
    SECURITY_DISABLED = 54, "", "no authoriser is configured"
    OPERATION_NOT_ATTEMPTED = 55, "", "not tried, because another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, "M", "the broker's disk failed for this partition"
    LOG_DIR_NOT_FOUND = 57, "", "the log directory is not configured on this broker"
    SASL_AUTHENTICATION_FAILED = 58, "", "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, "", "nothing is known of this producer id any more"
    REASSIGNMENT_IN_PROGRESS = 60, "", "a reassignment of the partition is under way"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "", "delegation tokens are not enabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, "", "the delegation token is unknown"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "", "the principal is not the token's owner"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "", "delegation tokens are not allowed here"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "", "not authorised for delegation tokens"
    DELEGATION_TOKEN_EXPIRED = 66, "", "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "", "the principal type is not supported"
    NON_EMPTY_GROUP = 68, "", "the group has members"
    GROUP_ID_NOT_FOUND = 69, "", "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, "R", "the fetch session is unknown"
    INVALID_FETCH_SESSION_EPOCH = 71, "R", "the fetch session's epoch does not follow the last"
    LISTENER_NOT_FOUND = 72, "M", "the leader does not have the listener the request came in on"
    TOPIC_DELETION_DISABLED = 73, "", "topic deletion is switched off"
    FENCED_LEADER_EPOCH = 74, "M", "the request's leader epoch is older than ours"
    UNKNOWN_LEADER_EPOCH = 75, "R", "the request's leader epoch is newer than ours"
    UNSUPPORTED_COMPRESSION_TYPE = 76, "", "the codec cannot be used with this version"
    STALE_BROKER_EPOCH = 77, "", "the broker's epoch has changed"
    OFFSET_NOT_AVAILABLE = 78, "R", "the high watermark has not caught up with the new leader yet"
    MEMBER_ID_REQUIRED = 79, "", "join again with the given member id"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "M", "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, "", "the group is full"
    FENCED_INSTANCE_ID = 82, "", "another member has taken over this group instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "M", "no eligible leader is available"
    ELECTION_NOT_NEEDED = 84, "M", "the partition has the wanted leader already"
    NO_REASSIGNMENT_IN_PROGRESS = 85, "", "no reassignment of the partition is under way"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "", "the group is subscribed to the topic"
    INVALID_RECORD = 87, "", "a record breaks the topic's rules"
    UNSTABLE_OFFSET_COMMIT = 88, "R", "a transaction with commits for this partition is pending"
    THROTTLING_QUOTA_EXCEEDED = 89, "R", "the quota for such requests is used up"
    PRODUCER_FENCED = 90, "", "a newer producer has taken over this transactional id"
    RESOURCE_NOT_FOUND = 91, "", "the resource does not exist"
    DUPLICATE_RESOURCE = 92, "", "the resource is named twice"
    UNACCEPTABLE_CREDENTIAL = 93, "", "the credential does not meet the requirements"
    INCONSISTENT_VOTER_SET = 94, "", "the voter sets of sender and receiver differ"
    INVALID_UPDATE_VERSION = 95, "", "the version to update to is invalid"
    FEATURE_UPDATE_FAILED = 96, "", "the features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "", "the forwarded principal cannot be read"
    SNAPSHOT_NOT_FOUND = 98, "", "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, "", "the position lies outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, "M", "This server does not host this topic ID."
    DUPLICATE_BROKER_REGISTRATION = 101, "", "a broker of this id is registered already"
    BROKER_ID_NOT_REGISTERED = 102, "", "no broker of this id is registered"
    INCONSISTENT_TOPIC_ID = 103, "M", "the log belongs to another topic id"
    INCONSISTENT_CLUSTER_ID = 104, "", "the peer belongs to another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, "", "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        "R",
        "the request and its fetch session name topics in different ways (name, id)",
    )
    INELIGIBLE_REPLICA = 107, "", "the replica may not join the in-sync set"
    NEW_LEADER_ELECTED = 108, "", "the change has made another replica leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "", "the offset has moved to tiered storage"
    FENCED_MEMBER_EPOCH = 110, "", "the member was fenced by the group"
    UNRELEASED_INSTANCE_ID = 111, "", "the group instance id is still in use"
    UNSUPPORTED_ASSIGNOR = 112, "", "the assignor is not supported by the group"
    STALE_MEMBER_EPOCH = 113, "", "the member's epoch is stale"
    MISMATCHED_ENDPOINT_TYPE = 114, "", "the request was meant for another type of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, "", "the endpoint type is not known"
    TRANSACTION_ABORTABLE = 120, "", "abort the transaction; the producer can then continue"
    INVALID_VOTER_KEY = 125, "", "the voter is not this node, or not the directory on its disk"
    DUPLICATE_VOTER = 126, "", "the node is a voter already"
    VOTER_NOT_FOUND = 127, "", "no voter has this node id and directory"


TEXT_CHARS_MAX = 1_000
"""The most characters of an error's text. It can quote a client, and must fit into any answer."""


class ApiError(Exception):
    """The error with which a core refuses a request, before it changes anything.

    Only the dispatcher and the per-partition helpers catch it and write `code` into the answer.
    `message` goes into answers that have a field for it. Our logs show the code as well.
    """

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    @property
    def message(self) -> str:
        """The text for an answer: the detail, or the description of the code if there is no
        detail."""
        return _clipped(self.detail or self.code.description)

    def __str__(self) -> str:
        return _clipped(f"{self.code.name}: {self.detail or self.code.description}")


def _clipped(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"
