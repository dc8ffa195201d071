"""The names and fields of the forms with which a user changes the cluster."""

from dataclasses import dataclass

from monitor.admin.orders import Operation


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a form: its name, its label, an example. `is_long` means several lines."""

    name: str
    label: str
    hint: str
    is_long: bool = False
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """The form of one operation. `is_destructive` is true if its effect cannot be undone."""

    operation: Operation
    title: str
    text: str
    fields: tuple[Field, ...]
    is_destructive: bool = False


FORMS = {
    form.operation: form
    for form in (
        Form(
            Operation.CREATE_TOPIC,
            "Create a topic",
            "Partitions and replicas are the cluster's defaults if they are left out.",
            (
                Field("topic", "Name", "logs.shop", is_required=True),
                Field("partitions", "Partitions", "3"),
                Field("replicas", "Replicas", "3"),
                Field("settings", "Settings", "retention.ms=604800000, one a line", is_long=True),
            ),
        ),
        Form(
            Operation.ALTER_TOPIC,
            "Change a topic's settings",
            "Kafka's own topic keys. Settings that are not named stay as they are.",
            (
                Field("topic", "Topic", "logs.shop", is_required=True),
                Field(
                    "settings", "Settings",
                    "key=value, one a line; -key restores the default", is_long=True,
                ),
                Field("partitions", "Partitions", "more than there are"),
            ),
        ),
        Form(
            Operation.DELETE_RECORDS,
            "Delete records",
            "The records before the new start of each log are deleted for good, for every reader.",
            (
                Field("topic", "Topic", "logs.shop", is_required=True),
                Field("partitions", "Partitions", "all, or 0, 2"),
                Field(
                    "below", "Below", "end, an offset, 7d (ago), or 2026-11-01T00:00Z",
                    is_required=True,
                ),
            ),
            is_destructive=True,
        ),
        Form(
            Operation.RESET_OFFSETS,
            "Reset a group's offsets",
            "The offsets at which a group continues. It must have no members in the meantime.",
            (
                Field("group", "Group", "billing", is_required=True),
                Field("topics", "Topics", "all it has committed, or logs.shop:0,1, one a line",
                      is_long=True),
                Field(
                    "to", "Continue at", "start, end, an offset, +10, -10, 1h (ago), or a time",
                    is_required=True,
                ),
            ),
            is_destructive=True,
        ),
        Form(
            Operation.ELECT_LEADERS,
            "Elect preferred leaders",
            "The first replica of each partition becomes its leader again, if it is in sync.",
            (Field("topic", "Topic", "all"),),
        ),
    )
}  # fmt: skip
