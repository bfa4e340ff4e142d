"""What stands in front of tools, in a server or a proxy: what is listed, what a call may use, what leaves.

Strategy: one `Front` for a server's life. It turns the tools' own list entries into what clients are told,
settles the policy of each call (settings file, then what the tool declared, then what is known of the client),
seals what comes back, answers `envelope_read`, and notes what was done. It knows no MCP library and awaits
nothing: adapters do.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from . import dialects
from .clients import UNKNOWN, Client
from .dialects.notice import READ_TOOL
from .envelope import most_said, seal
from .job import most_bytes
from .jsontree import Buffer
from .outcome import Failure
from .payload import Payload
from .policy import Policy, Settings
from .policy.table import BUILT_IN, budget_argument
from .published import Published as Published
from .published import Publisher
from .ranking import Ranking
from .sealed import Sealed
from .tracing import trace, trace_untouched

if TYPE_CHECKING:
    from .redaction import Redactor
    from .vault.ledger import Call as Noted
    from .vault.ledger import Ledger
    from .vault.vault import Keeping, Vault

# Without bounds: what is out of range is clamped, with a warning, and not refused by a client beforehand.
_log = logging.getLogger("mcp_envelope")
_BUDGET: Final = {
    "type": "integer",
    "description": "The most tokens that the result may have. Default: what the server is set to.",
}
# So many settled policies are remembered.
_REMEMBERED: Final = 4096


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool's author settled at the tool; a settings file goes before it."""

    tokens: int | None = None
    max_bytes: int | None = None
    lists: Mapping[str, Ranking] = {}
    hint: str | None = None
    # Whether a tool that yields items may be stopped once enough of them are there.
    stoppable: bool = False

    @property
    def has_budget(self) -> bool:
        return self.tokens is not None or self.max_bytes is not None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as far as it is known before it runs."""

    tool: str
    policy: Policy
    client: Client = UNKNOWN
    owner: str | None = None
    request_id: str | None = None
    declared: Declared = Declared()
    published: Published = Published()
    started: float = 0.0
    # The tracing span that the call came in with, if somebody traces.
    span: Any = None

    @property
    def is_native(self) -> bool:
        return self.policy.dialect == "native"

    @property
    def is_quiet(self) -> bool:
        """Whether a result that fits goes out as it is: there is nothing to say about it or to leave out."""
        policy = self.policy
        return (
            policy.dialect == "native"
            and policy.detail == "minimal"
            and not (policy.warnings or policy.include_only or policy.exclude_fields)
        )


class Front:
    """`vault` is an address, a vault, or None for what the settings say; `ledger` likewise, False for none.

    `budget`, in tokens, or `max_bytes` is what a tool gets for which nobody says anything else.
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
    ) -> None:
        self._usual = Declared(tokens=budget, max_bytes=max_bytes)
        self.settings = settings or Settings()
        self.dialect = None if dialect is None else dialects.dialect(dialect).name
        self.server = server
        if isinstance(vault, str):
            _check_vault(vault)
        self._vault = vault
        self._opened: tuple[Vault | None] | None = None
        self._ledger = ledger
        self._lock = threading.Lock()
        # Told of every call, besides the ledger.
        self.observers: list[Callable[[Noted], None]] = []
        self._token_budget = token_budget
        self.publisher = Publisher()
        # By identity, which is quick to look up; what the ids belong to is kept beside, so that it stays true.
        self._settled: dict[tuple[int, int, int], tuple[Policy, Client, Declared | None, Policy]] = {}

    # -- what is listed -------------------------------------------------------------------------------------

    def listed(self, entry: Mapping[str, Any], published: Published) -> dict[str, Any]:
        """A tool's entry in `tools/list`, as clients should see it."""
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

    def budget_argument(self, tool: str) -> str:
        """What the argument for a call's own budget is called: `tokenBudget`, or as the dialect spells it."""
        return budget_argument(self.policy(tool).dialect)

    def adds_budget(self, schema: object, name: str) -> bool:
        """Whether a tool gets the argument for its budget from us: not if it has one of its own."""
        if not self._token_budget or not isinstance(schema, Mapping):
            return False
        properties = schema.get("properties", {})
        return isinstance(properties, Mapping) and name not in properties

    def publish(
        self, tool: str, schema: Mapping[str, Any] | None, misses: bool = False, wrapped: bool = False
    ) -> Published:
        """What clients are told of a tool's result, for the tool's own output schema.

        `misses` tells that the tool may answer that there is nothing, in the dialect's words; `wrapped` that its
        library put a value that is no object into a member `result`.
        """
        return self.publisher.of(self.dialect or self.settings.policy(tool).dialect, schema, misses, wrapped)

    def read_tool(self) -> dict[str, Any]:
        """The list entry of our own tool."""
        from .vault.reading import TOOL

        return self.listed(TOOL, Published())

    # -- what a call may use --------------------------------------------------------------------------------

    def policy(
        self, tool: str, requested: object = None, client: Client = UNKNOWN, declared: Declared | None = None
    ) -> Policy:
        """The file and the environment, then the tool's own words, then what is known of the client."""
        base = self.settings.policy(tool)
        key = id(base), id(client), id(declared)
        kept = self._settled.get(key)
        if kept is None or kept[0] is not base or kept[1] is not client or kept[2] is not declared:
            if len(self._settled) >= _REMEMBERED:
                self._settled.clear()
            kept = self._settled[key] = base, client, declared, self._settle(base, client, declared)
        return kept[3] if requested is None else kept[3].with_budget(requested)

    def _settle(self, policy: Policy, client: Client, declared: Declared | None) -> Policy:
        changes: dict[str, Any] = {}
        if self.dialect is not None and self.dialect != policy.dialect:
            changes["dialect"] = self.dialect
        if not _is_set(policy, "tokens") and not _is_set(policy, "bytes"):
            said = next((each for each in (declared, self._usual) if each and each.has_budget), None)
            if said is not None:
                changes |= {"tokens": said.tokens, "bytes": said.max_bytes}
            elif (self.dialect or policy.dialect) == "native" and client.has_limit:
                changes |= {"tokens": client.tokens, "bytes": client.max_bytes}
        if declared is not None and declared.hint and not policy.hint:
            changes["hint"] = declared.hint
        return dataclasses.replace(policy, **changes) if changes else policy

    # -- what leaves ----------------------------------------------------------------------------------------

    def fits(
        self,
        call: Call,
        content: Sequence[Buffer],
        structured: Buffer | None,
        size: int,
        is_error: bool = False,
    ) -> bool:
        """Whether a result can go out as it is; it is noted if so.

        `size` is that of the larger lane, in bytes: tokens never exceed them.
        """
        policy = call.policy
        budget = policy.budget
        if not call.is_quiet or (call.published.wrap and structured is not None and not is_error):
            return False
        if budget is not None and size > budget.limit:
            # Only counting tells.
            if size > most_bytes(budget):
                return False
            lanes = _lanes(content, structured)
            if any(len(lane) > budget.limit and budget.meter.count(lane) > budget.limit for lane in lanes):
                return False
        if policy.redact:
            using = _redactor(policy)
            for part in content if structured is None else (*content, structured):
                if using.may_find(raw := bytes(part)) and using.redact_json(raw)[1]:
                    return False
        self.untouched(call, size)
        if call.span is not None:
            trace_untouched(budget, _lanes(content, structured), call.span)
        return True

    def masked(self, policy: Policy, raw: bytes) -> bytes:
        """A JSON document without the secrets in it; the same object if there are none."""
        if not policy.redact:
            return raw
        using = _redactor(policy)
        return using.redact_json(raw)[0] if using.may_find(raw) else raw

    def passes(self, call: Call, said: str, size: int) -> bool:
        """The same by the shortest way, for a result that is one short JSON text and well within its budget."""
        policy = call.policy
        if not call.is_quiet or (policy.redact and _redactor(policy).may_find_in(said)):
            return False
        self.untouched(call, size)
        return True

    def seal(self, payload: Any, call: Call, *, is_error: bool | None = None, **more: Any) -> Sealed:
        """Whatever a tool returned or raised, fitted, stored if it was cut, and noted."""
        policy, declared, published = call.policy, call.declared, call.published
        rank = {path: ranking for path, ranking in declared.lists.items() if not _ranks(policy, path)}
        begun = time.perf_counter()
        if is_error and not call.is_native and isinstance(payload, Payload):
            # A failure that a tool told by itself has a place of its own in each of the other dialects.
            words = _words(payload)
            # What cannot be shown whole goes along, to be stored. ctxo has no words for where it is.
            is_long = policy.dialect != "ctxo" and len(words) > most_said(policy.budget)
            payload, is_error = Failure("TOOL_FAILED", words, data=payload if is_long else None), None
        sealed = seal(
            payload,
            policy=policy,
            schema=None if is_error else published.schema,
            wrap=published.wrap and not is_error,
            rank=rank,
            **({"vault": self.keeping(call.owner)} | more),
            links=call.client.links,
            tool=call.tool,
            request_id=call.request_id,
            duration_ms=round((begun - call.started) * 1000, 3) if call.started else None,
            is_error=is_error,
        )
        ended = time.perf_counter()
        if self._ledger is not False or self.observers:
            from .vault.ledger import Call as Noted

            tool_ms = (begun - call.started) * 1000 if call.started else None
            noted = Noted.of(
                sealed,
                call.tool,
                client=call.client.name,
                server=self.server,
                dialect=policy.dialect,
                tool_ms=tool_ms,
                seal_ms=(ended - begun) * 1000,
            )
            self.note(noted)
        trace(sealed, call.span)
        return sealed

    def untouched(self, call: Call, size: int) -> None:
        """Note a result of so many bytes that went out as it came."""
        if self._ledger is False and not self.observers:
            return
        tokens = size // 4
        self.note(
            _noted()(
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
            )
        )

    def read(self, arguments: Mapping[str, Any], call: Call) -> Sealed:
        """Answer a call of `envelope_read`."""
        from .vault.reading import read

        sealed = read(self.vault, arguments, owner=call.owner, policy=call.policy)
        trace(sealed, call.span)
        return sealed

    # -- where things are kept ------------------------------------------------------------------------------

    @property
    def vault(self) -> Vault | None:
        """Opened when it is first needed."""
        if self._opened is None:
            with self._lock:
                if self._opened is None:
                    self._opened = (self._open(),)
        return self._opened[0]

    def _open(self) -> Vault | None:
        from .vault.places import open_vault
        from .vault.store import StoreError

        if self._vault is not None and not isinstance(self._vault, str):
            return self._vault
        policy = self.settings.policy()
        address = self._vault or policy.vault
        if not self._vault and policy.vault and not self.settings.may_place(policy):
            # A server is often started in somebody's project: that may not have results sent elsewhere.
            _log.warning(
                "mcp-envelope: vault = %r is not used, since %s was only found; name the file to use it",
                policy.vault,
                self.settings.file,
            )
            address = None
        try:
            return open_vault(address, ttl=policy.vault_ttl, cap=policy.vault_size)
        except (ValueError, StoreError) as error:
            # Results are still cut, and say that the rest was not kept.
            _log.warning("mcp-envelope: results are not kept: %s", error)
            return None

    def keeping(self, owner: str | None) -> Keeping | None:
        vault = self.vault
        return None if vault is None else vault.of(owner)

    def note(self, call: Noted) -> None:
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
def _noted() -> type[Noted]:
    """Imported when it is needed, but not looked up with every call."""
    from .vault.ledger import Call as Noted

    return Noted


@cache
def _redactor_of(patterns: tuple[tuple[str, str], ...]) -> Redactor:
    from . import treatment  # its patterns take a while to compile

    return treatment.redactor(patterns)


def _redactor(policy: Policy) -> Redactor:
    patterns = policy.redact_patterns
    return _redactor_of(tuple(patterns.items()) if patterns else ())


def _lanes(content: Sequence[Buffer], structured: Buffer | None) -> tuple[bytes, ...]:
    """The exact texts that are measured."""
    text = b"[%b]" % b",".join(content)
    return (text,) if structured is None else (text, bytes(structured))


def _words(payload: Payload) -> str:
    """What a failure's blocks say."""
    texts = [block.get("text") for block in map(msgspec.json.decode, payload.blocks or ())]
    if payload.text is not None:
        return payload.text.decode()
    said = "\n".join(text for text in texts if isinstance(text, str))
    return said or bytes(payload.as_node().raw).decode()


def _check_vault(address: str) -> None:
    """A mistake in an address is told where it was made."""
    if "://" in address:
        from .vault.places import check

        check(address)


def _is_set(policy: Policy, name: str) -> bool:
    return policy.sources.get(name, BUILT_IN) != BUILT_IN


def _ranks(policy: Policy, path: str) -> bool:
    """Whether the settings rank this list, by its path or by its bare name."""
    return path in policy.lists or path.rpartition("/")[2] in policy.lists


def is_read_tool(name: str) -> bool:
    return name == READ_TOOL


def payload_of(payload: Payload, call: Call) -> Payload:
    """The data alone, for a dialect that puts it into a shape of its own."""
    if not call.published.unwrap or payload.node is None or payload.node.kind != "object":
        return payload
    members = payload.node.members()
    if len(members) == 1 and members[0].key == "result":
        return Payload(node=payload.node.child(0), blocks=payload.blocks)
    return payload
