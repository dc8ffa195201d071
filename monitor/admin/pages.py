"""The pages on which a user with the token changes the cluster: `/admin` and below.

When a user submits a form, the page shows the plan. When the user confirms the plan, the page shows
the outcome. Both work without scripts. A form must come from a page of this site (Origin), in a
session (cookie), with the secret in the session's forms. Every change writes two audit lines to the
log and to the stored events: one before and one after it is carried out.
"""

import logging
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from monitor.admin.forms import FORMS
from monitor.admin.operating import OperationFailed, Orders, Reader
from monitor.admin.operations import Plan
from monitor.admin.orders import DeleteRecords, Operation, Order, order_of
from monitor.admin.session import Door, Refused, Session
from monitor.login.forms import NotFromHere, posted
from monitor.login.logins import address_of, identity_of
from monitor.sampling.sampler import Sampler
from monitor.state.levels import Event
from protocol.log import fields

COOKIE = "millrace_admin"
EVENTS_READ = 500
EVENTS_SHOWN = 30
ADMIN_EVENT = "admin"

Values = dict[str, Any]
Show = Callable[[Request, str, Values, int], Response]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Admin:
    """The objects that the pages use.

    `show` renders a template. `root` is the first part of every path. `has_logins` is True if
    people log in to the page, so that operators need no token.
    """

    door: Door
    has_logins: bool
    orders: Orders
    sampler: Sampler
    clock_ms: Callable[[], int]
    show: Show
    root: str

    def session(self, request: Request) -> Session | None:
        """Return the session of a request that may give orders; None if it has none."""
        now_ms = self.clock_ms()
        if not self.has_logins:
            return self.door.find(request.cookies.get(COOKIE), now_ms)
        identity = identity_of(request)
        if identity is None or not identity.is_valid():
            return None
        login = identity.session
        if login is None or not login.can_order:
            return None
        return self.door.admit(login.fingerprint, login.form_secret, login.person.name, now_ms)

    def entry(self, request: Request, fault: str | None, code: int) -> Response:
        """Return the page with the operations, or the login page if the request has no session."""
        session = self.session(request)
        values = {
            "session": session,
            "forms": FORMS,
            "events": self.events(),
            "fault": fault,
            "has_logins": self.has_logins,
        }
        return self.show(request, "admin.html", values, code)

    def page(
        self, request: Request, session: Session, operation: Operation, words: Mapping[str, str],
        code: int = 200, **more: object,
    ) -> Response:  # fmt: skip
        """Return the page of an operation: its form, its plan or its outcome."""
        values: Values = {
            "session": session, "form": FORMS[operation], "words": words, "fault": None,
            "plan": None, "ticket": None, "notice": None, "outcome": None, "failed": False,
        }  # fmt: skip
        return self.show(request, "operation.html", values | more, code)

    def events(self) -> list[Event]:
        """Return the audit lines of the last changes, newest first."""
        if self.sampler.recorder is None:
            return []
        try:
            last = self.sampler.recorder.store.events(0, self.clock_ms() + 1, EVENTS_READ)
        except sqlite3.Error:
            return []
        return [one for one in last if one.kind == ADMIN_EVENT][:EVENTS_SHOWN]

    def note(self, who: str, plan: Plan, result: str) -> None:
        """Write an audit line. Raise OperationFailed if it cannot be written."""
        changes = "; ".join(f"{e.what}: {e.before} → {e.after}" for e in plan.effects)
        logger.warning("change made on the page", extra=fields(who=who, order=plan.says,
                                                  result=result, effects=changes))  # fmt: skip
        recorder = self.sampler.recorder
        if recorder is None:
            return
        text = f"{who}: {plan.says}, {_changes(plan)}: {result}"
        try:
            recorder.store.note([Event(self.clock_ms(), ADMIN_EVENT, text, result != "begun")])
        except sqlite3.Error as error:
            raise OperationFailed(
                f"nothing was changed, because the history cannot be written: {error}"
            ) from error

    def readers(self, order: Order) -> list[Reader]:
        """Return the groups with commits in the topic and their offsets, by the latest snapshot."""
        snapshot = self.sampler.snapshot
        if snapshot is None or not isinstance(order, DeleteRecords):
            return []
        return [
            (group.group_id, cell.partition, cell.committed_offset)
            for group in snapshot.groups
            for cell in group.cells
            if cell.topic == order.topic and cell.committed_offset is not None
        ]


def admin_routes(admin: Admin) -> APIRouter:
    """Return the routes of `/admin` and its operations."""
    router = APIRouter(prefix="/admin", include_in_schema=False)

    @router.api_route("", methods=["GET", "HEAD"])
    def entry(request: Request) -> Response:
        return admin.entry(request, None, 200)

    if not admin.has_logins:
        _add_door(router, admin)
    _add_operations(router, admin)
    return router


def _add_door(router: APIRouter, admin: Admin) -> None:
    @router.post("/enter")
    async def enter(request: Request) -> Response:
        try:
            words = await posted(request)
            session = admin.door.enter(
                words.get("token", ""), words.get("who", ""), address_of(request),
                admin.clock_ms(),
            )  # fmt: skip
        except (NotFromHere, Refused) as error:
            logger.warning(
                "login on the page refused", extra=fields(address=address_of(request), why=error)
            )
            return admin.entry(request, str(error), 403)
        logger.warning(
            "login on the page", extra=fields(who=session.who, address=address_of(request))
        )
        answer = RedirectResponse(f"{admin.root}/admin", 303)
        answer.set_cookie(
            COOKIE, session.key, path=f"{admin.root}/", httponly=True, samesite="strict",
            secure=request.url.scheme == "https",
        )  # fmt: skip
        return answer

    @router.post("/leave")
    async def leave(request: Request) -> Response:
        try:
            session, _ = await _ordered(request, admin)
        except (NotFromHere, Refused) as error:
            return admin.entry(request, str(error), 403)
        admin.door.leave(session)
        answer = RedirectResponse(f"{admin.root}/admin", 303)
        answer.delete_cookie(COOKIE, path=f"{admin.root}/")
        return answer


def _add_operations(router: APIRouter, admin: Admin) -> None:
    @router.api_route("/{operation}", methods=["GET", "HEAD"])
    def form(request: Request, operation: Operation) -> Response:
        session = admin.session(request)
        if session is None:
            return admin.entry(request, "Enter first.", 401)
        return admin.page(request, session, operation, dict(request.query_params))

    @router.post("/{operation}")
    async def look(request: Request, operation: Operation) -> Response:
        try:
            session, words = await _ordered(request, admin)
        except (NotFromHere, Refused) as error:
            return admin.entry(request, str(error), 403)
        try:
            order = order_of(operation, words, admin.clock_ms())
            plan = await admin.orders.look(order, admin.readers(order))
        except ValueError as error:
            return admin.page(request, session, operation, words, 400, fault=str(error))
        except OperationFailed as error:
            return admin.page(request, session, operation, words, 503, fault=str(error))
        return _shown(request, admin, session, operation, plan, None)

    @router.post("/{operation}/confirm")
    async def confirm(request: Request, operation: Operation) -> Response:
        try:
            session, words = await _ordered(request, admin)
            plan = admin.door.take(
                session, words.get("ticket", ""), words.get("name", ""), admin.clock_ms()
            )
        except (NotFromHere, Refused) as error:
            return admin.entry(request, str(error), 403)
        try:
            again = await admin.orders.look(plan.order, admin.readers(plan.order))
            if admin.session(request) is None:
                # The person was removed or has logged out while the cluster was asked.
                return admin.entry(request, "Your session has ended: nothing was done.", 403)
            if again.refusal is not None or again.basis != plan.basis:
                notice = "The cluster has changed since the plan was made, so nothing was done."
                return _shown(
                    request,
                    admin,
                    session,
                    operation,
                    again,
                    f"{notice} This is the plan as of now.",
                )
            who = f"{session.who} ({address_of(request)})"
            admin.note(who, plan, "begun")
        except OperationFailed as error:
            return admin.page(request, session, operation, {}, 503, fault=str(error))
        return await _carried_out(request, admin, session, operation, plan)


def _shown(
    request: Request, admin: Admin, session: Session, operation: Operation, plan: Plan,
    notice: str | None,
) -> Response:  # fmt: skip
    """Show a plan, with a ticket to confirm it unless it is refused."""
    ticket = None
    if plan.refusal is None:
        ticket = admin.door.show(session, plan, admin.clock_ms())
    code = 200 if notice is None and plan.refusal is None else 409
    return admin.page(
        request, session, operation, {}, code, plan=plan, ticket=ticket, notice=notice
    )


async def _carried_out(
    request: Request, admin: Admin, session: Session, operation: Operation, plan: Plan
) -> Response:
    who, failed = f"{session.who} ({address_of(request)})", False
    try:
        result = await admin.orders.carry_out(plan)
    except OperationFailed as error:
        result, failed = f"failed: {error}", True
    try:
        admin.note(who, plan, result)
    except OperationFailed as error:
        result = f"{result}; {error}"
    code = 502 if failed else 200
    return admin.page(
        request, session, operation, {}, code, plan=plan, outcome=result, failed=failed
    )


async def _ordered(request: Request, admin: Admin) -> tuple[Session, dict[str, str]]:
    """Return the session and the fields of an order.

    Raise NotFromHere or Refused unless a page of this site sent it in a session.
    """
    words = await posted(request)
    session = admin.session(request)
    if session is None:
        raise Refused("your session has ended: log in again")
    admin.door.check(session, words.get("form_secret", ""))
    return session, words


def _changes(plan: Plan) -> str:
    return f"{len(plan.effects)} change{'' if len(plan.effects) == 1 else 's'}"
