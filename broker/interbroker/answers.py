"""Answers to other brokers that are sent once the change is committed and in force."""

from __future__ import annotations

from broker.controller.active import OrderWaiter
from broker.sessions.call import Call
from broker.sessions.dispatch import refusal
from protocol.errors import ApiError


def waiter_of(call: Call) -> OrderWaiter:
    """Return a waiter that answers the call: with the controller's reply, or with its error."""

    def refused(error: ApiError) -> None:
        call.answer(refusal(call.api_key, error))

    return OrderWaiter(call.answer, refused)
