"""What every adapter talks to: tool lists and calls in, results out.

Strategy: one `Gateway` for the life of a server or a proxy. It decides what clients see in a tool list, settles
the policy of each call (settings, then what the tool declares, then what is known of the client), and finishes
each call: `finish` returns None for an answer that goes out as it came, and otherwise what goes out instead,
with the whole stored, the call recorded and traced. It also answers `envelope_read`. It knows no MCP library and
awaits nothing; adapters do.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from . import dialects
from .clients.known import UNKNOWN, Client
from .config import BUDGET_ARGUMENT, BUILT_IN, Policy, Settings, Shape
from .dialects import Dialect
from .dialects.notice import READ_TOOL, read_it
from .envelope import Sealed, make_plan, most_shown, seal_plan
from .errors import diagnose
from .fit.ranking import Ranking
from .jsontext.document import encode, text_block, unescaped
from .outcome import Failure, Miss, Outcome, OwnFailure, Remarks, Reply
from .payload import Payload, Result, apart, read_result
from .schema import Schema, SchemaError, widen
from .schema.widening import map_for_classes, without_required
from .tracing import trace, trace_untouched

if TYPE_CHECKING:
    from .redaction import Masking, Redactor
    from .reply_meta import ReplyMeta
    from .vault.ledger import Ledger, LedgerEntry
    from .vault.masked_values import MaskedValues
    from .vault.vault import CallerVault, Vault

_log = logging.getLogger("mcp_envelope")
# Its name says what it is, and every tool pays for more. Without bounds: a client would refuse what is out of
# range, while we clamp it and warn.
_BUDGET: Final = {"type": "integer"}
_WRAPPED: Final = "x-fastmcp-wrap-result"
# How many settled policies are remembered.
_REMEMBERED: Final = 4096
# How large the remembered schemas may be together, in bytes of JSON, and what each counts for besides.
# Prepared, they take about 130 times as much memory.
_MOST_PUBLISHED: Final = 1 << 21
_AROUND_SCHEMA: Final = 256
# A part of every placeholder, in each case. `redaction` is loaded only if it is needed.
_PLACEHOLDERS: Final = (b"edacted", b"EDACTED")
# A part of the key in `reply_meta`, likewise.
_REPLY: Final = b"mcp-envelope/reply"
# For how many callers masked values are at hand; the vault has those of the others.
_CALLERS: Final = 256


class Published(msgspec.Struct, frozen=True):
    """What clients know of a tool's result: the schema in the tool list, and what results must conform to."""

    document: dict[str, Any] | None = None
    schema: Schema | None = None
    # Whether the payload goes into a member `result`, since the tool's own root isn't an object.
    wrap: bool = False
    # Whether the tool's own result is {"result": …} around a value, and the dialect wants the value.
    unwrap: bool = False
    # The name of the argument for a call's own budget.
    budget_argument: str = BUDGET_ARGUMENT


class Publisher:
    """Makes what is published for a schema once, and finds it again by the schema's identity or text."""

    def __init__(self) -> None:
        self._published: dict[tuple[Shape, bytes, bool, bool], Published] = {}
        # By identity, which is quick. The schema is kept too, so that its id can't be given to another one.
        self._by_id: dict[tuple[Shape, int, bool, bool], tuple[object, Published]] = {}
        self._size = 0

    def of(
        self, shape: Shape, schema: Mapping[str, Any] | None, misses: bool = False, wrapped: bool = False
    ) -> Published:
        found = self._by_id.get((shape, id(schema), misses, wrapped))
        if found is not None and found[0] is schema:
            return found[1]
        text = b"" if schema is None else encode(schema)
        self._size += len(text) + _AROUND_SCHEMA
        if self._size > _MOST_PUBLISHED:
            self._published.clear()
            self._by_id.clear()
            self._size = len(text) + _AROUND_SCHEMA
        known = self._published.get((shape, text, misses, wrapped))
        if known is None:
            made = _publish(shape, schema, misses, wrapped)
            known = replace(made, budget_argument=dialects.dialect(shape.dialect).budget_argument)
            self._published[shape, text, misses, wrapped] = known
        self._by_id[shape, id(schema), misses, wrapped] = schema, known
        return known


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool's author declared at the tool; a settings file takes precedence."""

    tokens: int | None = None
    max_bytes: int | None = None
    lists: Mapping[str, Ranking] = {}
    hint: str | None = None
    # Whether a generator may be stopped once it has yielded enough.
    stoppable: bool = False

    @property
    def has_budget(self) -> bool:
        return self.tokens is not None or self.max_bytes is not None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call: who makes it, and what applies to its result."""

    tool: str
    policy: Policy
    client: Client = UNKNOWN
    owner: str | None = None
    # The id that the client gave the call, if it did.
    request_id: str | None = None
    arguments: Mapping[str, Any] | None = None
    declared: Declared = Declared()
    published: Published = Published()
    started: float = 0.0
    # Whether the result goes out as it came, whatever comes of sealing it.
    observed: bool = False
    # The tracing span that was open when the call came in, if there was one.
    span: Any = None
    # Gathers what the tool's own code reports while it runs.
    remarks: Remarks | None = None

    @property
    def dialect(self) -> Dialect:
        return dialects.DIALECTS[self.policy.dialect]

    @property
    def is_native(self) -> bool:
        """Whether a result that fits is left in its own shape."""
        return self.dialect.in_place

    @property
    def is_quiet(self) -> bool:
        """Whether a result that fits goes out as it came, because there is nothing to add to it or leave out."""
        return self.policy.is_quiet and (self.remarks is None or self.remarks.is_empty)


class Gateway:
    """`vault` is an address, a vault, or None for the one in the settings; `ledger` likewise, False for none.

    `budget`, in tokens, or `max_bytes` applies where neither the settings nor the tool set one. `identity` tells
    this server from others that use the same vault, in more detail than its name. `prefix` stands before the names
    of its tools in the settings.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        vault: Vault | str | None = None,
        ledger: Ledger | bool = True,
        dialect: str | None = None,
        server: str = "",
        token_budget: bool = True,
        budget: int | None = None,
        max_bytes: int | None = None,
        identity: str = "",
        prefix: str = "",
    ) -> None:
        self._default = Declared(tokens=budget, max_bytes=max_bytes)
        self.settings = settings or Settings()
        self.dialect = None if dialect is None else dialects.dialect(dialect).name
        self.server = server
        self.identity = identity
        self._prefix = prefix
        # Masked values, by caller.
        self._masks: OrderedDict[str | None, MaskedValues] = OrderedDict()
        if isinstance(vault, str):
            _check_vault(vault)
        self._vault = vault
        self._opened: tuple[Vault | None] | None = None
        self._ledger = ledger
        self._lock = threading.Lock()
        # Called with every ledger entry, whether or not there is a ledger.
        self.observers: list[Callable[[LedgerEntry], None]] = []
        self._token_budget = token_budget
        self.publisher = Publisher()
        # By identity, which is quick. The objects are kept too, so that their ids can't be given to others.
        self._settled: dict[tuple[int, int, int], tuple[Policy, Client, Declared | None, Policy]] = {}

    # -- tool lists -----------------------------------------------------------------------------------------

    def listed(self, entry: Mapping[str, Any], published: Published) -> dict[str, Any]:
        """Return a tool's entry in `tools/list` as clients should see it."""
        shown = dict(entry)
        if published.document is not None:
            shown["outputSchema"] = published.document
        else:
            shown.pop("outputSchema", None)
        schema = entry.get("inputSchema")
        if self.adds_budget(schema, published.budget_argument):
            assert isinstance(schema, Mapping)
            properties = {**schema.get("properties", {}), published.budget_argument: _BUDGET}
            shown["inputSchema"] = {**schema, "properties": properties}
        return shown

    def spoken(self, tool: str) -> Dialect:
        """Return the dialect of a tool's results."""
        return dialects.DIALECTS[self.policy(tool).dialect]

    def adds_budget(self, schema: object, name: str) -> bool:
        """Whether we add a budget argument to a tool: not if it has one of that name itself."""
        if not self._token_budget or not isinstance(schema, Mapping):
            return False
        properties = schema.get("properties", {})
        return isinstance(properties, Mapping) and name not in properties

    def publish(
        self, tool: str, schema: Mapping[str, Any] | None, misses: bool = False, wrapped: bool = False
    ) -> Published:
        """Return what clients should know of a tool's result, given the tool's own output schema.

        `misses` means that the tool may return a `Miss`; `wrapped` that its library put a value that isn't an
        object into a member `result`.
        """
        return self.publisher.of(self._base(tool).shape, schema, misses, wrapped)

    def read_tool(self) -> dict[str, Any]:
        """Return the list entry of `envelope_read`."""
        from .vault.read_tool import TOOL

        return self.listed(TOOL, self.publish(READ_TOOL, None))

    # -- policies -------------------------------------------------------------------------------------------

    def policy(
        self, tool: str, requested: object = None, client: Client = UNKNOWN, declared: Declared | None = None
    ) -> Policy:
        """Return the policy of a call: settings first, then the tool's own, then what is known of the client."""
        base = self._base(tool)
        key = id(base), id(client), id(declared)
        kept = self._settled.get(key)
        if kept is None or kept[0] is not base or kept[1] is not client or kept[2] is not declared:
            if len(self._settled) >= _REMEMBERED:
                self._settled.clear()
            kept = self._settled[key] = base, client, declared, self._settle(base, client, declared)
        return kept[3] if requested is None else kept[3].with_budget(requested)

    def _base(self, tool: str | None = None) -> Policy:
        """Return what the settings say, in the dialect that was chosen in code, if one was."""
        named = self._prefix + tool if tool and self._prefix else tool
        return self.settings.policy(named, dialect=self.dialect)

    def _settle(self, policy: Policy, client: Client, declared: Declared | None) -> Policy:
        reader = client.reader or policy.reader
        if reader == "program" or (reader == "auto" and client.is_program):
            # A program computes with what it gets, so only the whole is right. Its budget is for safety.
            return replace(policy, tokens=None, bytes=policy.program_bytes, is_whole=True, images="pass")
        changes: dict[str, Any] = {"caps": client.caps} if client.caps is not None else {}
        if not _is_set(policy, "tokens") and not _is_set(policy, "bytes"):
            source = next((each for each in (declared, self._default) if each and each.has_budget), None)
            if source is not None:
                changes |= {"tokens": source.tokens, "bytes": source.max_bytes}
            elif dialects.DIALECTS[policy.dialect].in_place and client.has_limit:
                changes |= {"tokens": client.tokens, "bytes": None if client.tokens else client.max_bytes}
        if declared is not None and declared.hint and not policy.hint:
            changes["hint"] = declared.hint
        for name in ("image_cost", "image_pixels", "image_bytes"):
            if (known := getattr(client, name)) is not None and not _is_set(policy, name):
                changes[name] = known
        if not client.images and not _is_set(policy, "images"):
            reason = f"{client.name} doesn't show its model images that come from tools"
            changes |= {"images": "store", "no_images": reason}
        if not client.images_beside_structure:
            changes["images_alone"] = True
        if not client.embedded_images:
            changes["images_embedded"] = False
        if client.saved_bytes:
            changes["saved_bytes"] = client.saved_bytes
        settled = replace(policy, **changes) if changes else policy
        return self.settings.lowered(settled) if settled.offers else settled

    # -- results ----------------------------------------------------------------------------------------------

    def finish(
        self, answer: Result | Payload | Reply[Any] | Miss | Failure, call: Call, *, store: bool = True
    ) -> Sealed | None:
        """Return what goes out in place of a tool's answer, or None if the answer goes out as it came.

        A `Result` is left alone if it is within its budget and there is nothing to add, in its `_meta` or
        elsewhere. Anything else has no wire form yet, so it is always sealed. Whatever is cut is stored first,
        unless `store` is false.
        """
        if not isinstance(answer, Result):
            return self.seal(answer, call, store=store)
        statement = _statement(answer)
        if statement is None and self.passes(answer, call):
            return None
        payload, is_error = _payload(answer.as_utf8(), call), answer.is_error or None
        sealed = self.seal(payload, call, is_error=is_error, store=store, statement=statement)
        is_other = (call.published.wrap and answer.structured is not None) or (
            statement and not statement.found
        )
        if sealed.untouched and not is_other:
            # Nothing was cut or added; but the original may owe its size to whitespace that sealing removed.
            return None if _is_within(answer, call) else sealed
        return sealed

    def passes(self, result: Result, call: Call) -> bool:
        """Whether a result goes out as it came; if so, it is recorded."""
        policy = call.policy
        # A success has to be wrapped as published; some clients hold even a failure's structure to the schema.
        if not call.is_quiet or (call.published.wrap and result.structured is not None):
            return False
        if not _is_within(result, call):
            return False
        if policy.redacts:
            parts = result.content if result.structured is None else (*result.content, result.structured)
            for part in parts:
                if self.masked(call, raw := bytes(part)) is not raw:
                    return False
        self._record_untouched(call, result.size)
        if call.span is not None:
            trace_untouched(policy.budget, result.lanes(), call.span)
        return True

    def passes_text(self, text: str, size: int, call: Call) -> bool:
        """`passes` for a result known to be one short JSON text, well within its budget."""
        policy = call.policy
        if not call.is_quiet or (policy.redacts and _redactor(policy).may_find(text.encode())):
            return False
        self._record_untouched(call, size)
        return True

    # -- masked values ----------------------------------------------------------------------------------------

    def masking(self, call: Call) -> Masking | None:
        """Return what takes note of a result's masked values; None if nothing is to be masked."""
        if not call.policy.redacts:
            return None
        from .redaction import Masking

        masks = self._masks_of(call.owner)
        return Masking(None if masks is None else masks.placeholder)

    def masked(self, call: Call, raw: bytes, masking: Masking | None = None) -> bytes:
        """Return a JSON document with its secrets masked; the same object if there are none."""
        if not call.policy.redacts:
            return raw
        using = _redactor(call.policy)
        if not using.may_find(raw):
            return raw
        masking = masking or self.masking(call)
        assert masking is not None
        return using.redact_json(raw, masking)

    def restored(self, arguments: Any, call: Call) -> Any:
        """Return the arguments of a call, as JSON or as Python objects, with the originals of masked values.

        Arguments without placeholders are returned as the same object. `Failure` is raised for a placeholder that
        stands for nothing, unless nothing is masked here anyway.
        """
        if not arguments or not may_have_placeholder(arguments):
            return arguments
        from .redaction import restored

        masks = self._masks_of(call.owner)
        return restored(
            arguments, (lambda _: None) if masks is None else masks.original, strict=call.policy.redacts
        )

    def _masks_of(self, owner: str | None) -> MaskedValues | None:
        vault = self.vault
        if vault is None:
            return None
        with self._lock:
            known = self._masks.get(owner)
            if known is None:
                from .vault.masked_values import MaskedValues

                known = self._masks[owner] = MaskedValues(
                    vault, self.identity or program_identity(self.server), owner
                )
                if len(self._masks) > _CALLERS:
                    self._masks.popitem(last=False)
            return known

    # -- sealing ----------------------------------------------------------------------------------------------

    def seal(
        self,
        payload: Any,
        call: Call,
        *,
        is_error: bool | None = None,
        store: bool = True,
        handle: str | None = None,
        warnings: Sequence[str] = (),
        masking: Masking | None = None,
        statement: ReplyMeta | None = None,
    ) -> Sealed:
        """Seal whatever a tool returned or raised; store it if it was cut, and record the call.

        `handle` names a payload that was stored already, and `masking` says what was masked, while it came in.
        A `statement` is what the server says besides.
        """
        policy, published, spoken = call.policy, call.published, call.dialect
        begun = time.perf_counter()
        outcome = Outcome(
            handle=handle,
            linkable=call.client.links,
            warnings=tuple(warnings),
            tool=call.tool,
            request_id=call.request_id,
            duration_ms=round((begun - call.started) * 1000, 3) if call.started else None,
        )
        plan = make_plan(
            payload,
            policy.budget or spoken.budget(None, None, policy.meter),
            outcome,
            spoken,
            policy=policy,
            schema=None if is_error and spoken.in_place else published.schema,
            wrap=published.wrap and not is_error,
            rank={path: rank for path, rank in call.declared.lists.items() if not _ranks(policy, path)},
            is_error=is_error,
            remarks=call.remarks,
            masking=masking or self.masking(call),
            is_masked=masking is not None,
            arguments=call.arguments,
            statement=statement,
            shares=shares_budget(call),
        )
        if policy.is_whole and plan.payload.size > policy.program_bytes:
            return self._withheld(plan.payload, call, handle, store)
        sealed = seal_plan(plan, spoken, self.keeping(call.owner) if store and handle is None else None)
        if policy.is_whole and sealed.truncated:
            return self._withheld(plan.payload, call, sealed.handle, store)
        ended = time.perf_counter()
        if self._ledger is not False or self.observers:
            tool_ms = (begun - call.started) * 1000 if call.started else None
            noted = _ledger_entry().of(
                sealed,
                call.tool,
                client=call.client.name,
                server=self.server,
                dialect=policy.dialect,
                tool_ms=tool_ms,
                seal_ms=(ended - begun) * 1000,
                observed=call.observed,
            )
            self.note(noted)
        if call.span is not None:
            trace(sealed, call.span)
        return sealed

    def _withheld(self, payload: Payload, call: Call, handle: str | None, store: bool) -> Sealed:
        """Seal the failure that a program gets in place of more than it may have: none of the data is in it."""
        keeping = self.keeping(call.owner) if store else None
        if handle is None and keeping is not None:
            handle, _ = keeping.promise()
            handle = handle if keeping.keep(handle, payload, call.tool) is None else None
        most = call.policy.program_bytes
        message = f"The result has {payload.size} bytes, and a program gets {most} at most (program_bytes)."
        hint = "Narrow the request."
        if handle is not None:
            # In the message, because not every dialect has a place for the handle, or for a hint.
            message += f" {read_it(handle)}"
            hint = "Read it in parts: with sql, query, or offset."
        model = replace(call.policy, is_whole=False, bytes=None)
        return self.seal(
            OwnFailure("RESULT_TOO_LARGE", message, hint), replace(call, policy=model), handle=handle
        )

    def report(self, number: object, message: str, data: Any, call: Call) -> Sealed:
        """Seal a protocol error as the failure of the call that it answers."""
        problem = diagnose(message, data, number, call.policy.errors)
        budget = call.policy.budget or call.dialect.budget(None, None, None)
        details = data if isinstance(data, dict) else None if data is None else {"data": data}
        is_long = len(message) > most_shown(budget, call.dialect)
        whole = Payload(text=message.encode()) if is_long else None
        failure = OwnFailure(problem.code, problem.message, problem.hint, details, data=whole)
        return self.seal(failure, call)

    def _record_untouched(self, call: Call, size: int) -> None:
        if self._ledger is False and not self.observers:
            return
        tokens = size // 4
        self.note(
            _ledger_entry()(
                at=time.time(),
                tool=call.tool,
                client=call.client.name,
                server=self.server,
                dialect=call.policy.dialect,
                bytes_before=size,
                bytes_after=size,
                before=tokens,
                after=tokens,
                tool_ms=(time.perf_counter() - call.started) * 1000 if call.started else None,
                observed=call.observed,
            )
        )

    def read(self, arguments: Mapping[str, Any], call: Call) -> Sealed:
        """Answer a call of `envelope_read`."""
        from .vault.read_tool import read

        sealed = read(self.vault, arguments, owner=call.owner, policy=call.policy, request_id=call.request_id)
        if self._ledger is not False or self.observers:
            from .vault.ledger import digest

            of, result = _ledger_entry().of, digest(arguments.get("handle"))
            known = {"client": call.client.name, "server": self.server, "dialect": call.policy.dialect}
            self.note(replace(of(sealed, READ_TOOL, **known), stored=False, result=result))
        if call.span is not None:
            trace(sealed, call.span)
        return sealed

    def resource(self, uri: str, owner: str | None) -> tuple[bytes, str]:
        """Return the result of `resources/read` for a stored result, or the message of a protocol error."""
        from .vault.read_tool import resource

        try:
            return resource(self.vault, uri, owner), ""
        except Failure as failure:
            problem = failure.problem
            return b"", f"{problem.code}: {problem.message} {problem.hint}"

    # -- vault and ledger -----------------------------------------------------------------------------------

    @property
    def vault(self) -> Vault | None:
        """The vault, opened when it is first needed; None if results aren't kept."""
        if self._opened is None:
            with self._lock:
                if self._opened is None:
                    self._opened = (self._open(),)
        return self._opened[0]

    def _open(self) -> Vault | None:
        from .vault.store import StoreError
        from .vault.vault import open_vault

        if self._vault is not None and not isinstance(self._vault, str):
            return self._vault
        policy = self.settings.policy()
        address = self._vault or policy.vault
        if not self._vault and policy.vault and not self.settings.may_place(policy):
            # A server is often started in somebody's project, whose files must not send results elsewhere.
            _log.warning(
                "mcp-envelope: ignoring vault = %r, because %s was not named explicitly or accepted",
                policy.vault,
                self.settings.file,
            )
            address = None
        try:
            return open_vault(address, ttl=policy.vault_ttl, cap=policy.vault_size)
        except (ValueError, StoreError) as error:
            # Results are still cut; they say that the rest was not kept.
            _log.warning("mcp-envelope: results are not kept: %s", error)
            return None

    def keeping(self, owner: str | None) -> CallerVault | None:
        vault = self.vault
        return None if vault is None else vault.of(owner)

    def note(self, call: LedgerEntry) -> None:
        for observer in self.observers:
            observer(call)
        if self._ledger is True:
            from .vault.ledger import Ledger

            with self._lock:
                if self._ledger is True:
                    self._ledger = Ledger()
        if not isinstance(self._ledger, bool):
            self._ledger.record(call)

    def close(self) -> None:
        if not isinstance(self._ledger, bool):
            self._ledger.close()
        if self._opened is not None and self._opened[0] is not None:
            self._opened[0].close()


@cache
def _ledger_entry() -> type[LedgerEntry]:
    """Import it on first use, and only look it up once."""
    from .vault.ledger import LedgerEntry

    return LedgerEntry


def _redactor(policy: Policy) -> Redactor:
    from .redaction import redactor  # only if it is on: its rules take a while to compile

    return redactor(policy.redact, tuple(policy.redact_patterns.items()))


def may_have_placeholder(value: object) -> bool:
    """Whether there may be a placeholder in arguments, or in JSON."""
    if isinstance(value, str):
        return any(part.decode() in value for part in _PLACEHOLDERS)
    if isinstance(value, bytes):
        return any(part in value for part in _PLACEHOLDERS)
    if isinstance(value, dict):
        return any(may_have_placeholder(key) or may_have_placeholder(item) for key, item in value.items())
    return isinstance(value, list) and any(map(may_have_placeholder, value))


def program_identity(name: str) -> str:
    """Return what tells a server of this program from others, also from those that have the same name."""
    return "\0".join([name, os.path.abspath(sys.argv[0]), os.getcwd()])


def _check_vault(address: str) -> None:
    """Report a mistake in an address where it was made."""
    if "://" in address:
        from .vault.vault import check_address

        check_address(address)


def _is_set(policy: Policy, name: str) -> bool:
    return policy.sources.get(name, BUILT_IN) != BUILT_IN


def _ranks(policy: Policy, path: str) -> bool:
    """Whether the settings rank this list, by its path or by its bare name."""
    return path in policy.lists or path.rpartition("/")[2] in policy.lists


def shares_budget(call: Call) -> bool:
    """Whether both lanes share one budget: most clients show their model one lane, a few show both."""
    return call.client.lane == "both" and call.is_native and not call.policy.is_whole


def _is_within(result: Result, call: Call) -> bool:
    """Whether a result is within the budget as it is, and its images within theirs."""
    budget, measured = call.policy.budget, result
    if result.has_files:
        measured, stay = result.without_files(call.policy.image_budget)
        if not stay:
            return False
    if budget is None:
        return True
    if result.is_error:
        budget = budget.for_errors
    both = result.structured is not None and shares_budget(call)
    if budget.is_certain_size(2 * measured.size if both else measured.size):
        return True
    # Only counting tells, unless it is hopeless.
    if measured.size > budget.most_json:
        return False
    lanes = measured.lanes()
    if both:
        used = sum([budget.load(lane, budget.meter.count(lane)) for lane in lanes])
        return used <= budget.limit
    return all(map(budget.holds, lanes))


def _statement(result: Result) -> ReplyMeta | None:
    """Return what the server says in the result's `_meta`, if it does."""
    if result.meta is None or _REPLY not in bytes(result.meta):
        return None
    from .reply_meta import reply_meta_in

    return reply_meta_in(result.meta)


def _payload(result: Result, call: Call) -> Payload:
    """Return what there is to fit."""
    content, structured = tuple(result.content), result.structured
    if result.opaque:
        return Payload(text=bytes(content[0]))
    payload = read_result(content, structured)
    if result.is_error and structured is not None and call.published.schema is not None:
        # Cut, the structure of a failure could break the schema that some clients hold it to. In the text,
        # no schema binds it.
        if payload.blocks is None:
            return Payload(text=payload.original())
        return Payload(blocks=(*content, text_block(bytes(structured).decode())))
    return unwrapped(payload, call)


def unwrapped(payload: Payload, call: Call) -> Payload:
    """Return the data alone, for a dialect that puts it into a shape of its own."""
    if not call.published.unwrap or payload.node is None or payload.node.kind != "object":
        return payload
    members = payload.node.members()
    if len(members) != 1 or members[0].key != "result":
        return payload
    value = payload.node.child(0)
    if value.kind == "string":
        # A text may spell a document, as it may without a structure.
        with suppress(ValueError):  # half a surrogate pair has no text
            said, (texts, rest) = unescaped(members[0].value), apart(payload)
            if not rest.blocks and all(text.encode() == said for text in texts):
                return Payload(text=said)
    return Payload(node=value, blocks=payload.blocks)


def _publish(shape: Shape, schema: Mapping[str, Any] | None, misses: bool, wrapped: bool) -> Published:
    spoken = dialects.dialect(shape.dialect)
    try:
        if spoken.in_place:
            if schema is None:
                return Published()
            schema = _selected(schema, shape)
            widened = widen(schema)
            if misses:
                document = spoken.output_schema(schema)
                assert document is not None
                return Published(document, Schema.of(document), widened.wrapped)
            document = dict(map_for_classes(widened.schema))
            return Published(document, Schema.of(widened.schema), widened.wrapped)
        inner = None if schema is None else _unwrapped(schema, wrapped)
        data = inner
        if schema is not None and inner is schema:
            # A tool that speaks the contract itself promises the envelope: its data is what is put into one.
            data = spoken.data_schema(schema) or schema
        if inner is not None and _says_nothing(inner):
            data = None
        data = None if data is None else _selected(data, shape)
        document = spoken.output_schema(data)
        held = None if data is None or document is None else Schema.of(data)
        return Published(document, held, unwrap=inner is not schema)
    except SchemaError:
        # A schema that nobody can use is passed on as it is, and nothing has to conform to it.
        if not spoken.in_place:
            return Published(spoken.output_schema(None), unwrap=wrapped)
        return Published(None if schema is None else dict(schema))


def _says_nothing(schema: Mapping[str, Any]) -> bool:
    """Whether this is what a library says of any text, which may be JSON, or of any dictionary.

    A dictionary may be an envelope, whose data is of any type.
    """
    said = {name: value for name, value in schema.items() if name != "title"}
    return said in ({"type": "string"}, {"type": "object"}, {"type": "object", "additionalProperties": True})


def _is_wrapper(schema: Mapping[str, Any]) -> bool:
    """Whether the official SDK made this schema around a value that isn't an object: there is no mark on it."""
    title, properties = schema.get("title"), schema.get("properties")
    inner = properties.get("result") if isinstance(properties, Mapping) and len(properties) == 1 else None
    is_named = isinstance(title, str) and title.endswith("Output") and schema.get("required") == ["result"]
    return is_named and isinstance(inner, Mapping) and inner.get("title") == "Result"


def _selected(schema: Mapping[str, Any], shape: Shape) -> Mapping[str, Any]:
    """Return the schema without a requirement of fields that the settings, or the contract's own, may leave out."""
    if dialects.dialect(shape.dialect).selects_fields:
        return without_required(schema, lambda name: True)
    if not shape.include_only and not shape.exclude_fields:
        return schema
    return without_required(schema, shape.leaves_out)


def _unwrapped(schema: Mapping[str, Any], wrapped: bool) -> Mapping[str, Any]:
    """Return the schema of the data alone, where a server library put it into a member of its own."""
    properties = schema.get("properties")
    wrapped = wrapped or bool(schema.get(_WRAPPED)) or _is_wrapper(schema)
    if not wrapped or not isinstance(properties, Mapping) or "result" not in properties:
        return schema
    inner = properties["result"]
    if not isinstance(inner, Mapping):
        return schema
    shared = {name: schema[name] for name in ("$defs", "definitions", "$schema") if name in schema}
    return {**shared, **inner}
