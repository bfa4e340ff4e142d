"""What a server's results are worth to clients: one score for each promise, from what a probe brought back.

Strategy: each check looks at all calls and counts those that pass; it names the others. Sizes are those of what a
client shows its model, against the limits that `clients.toml` has for it. Nothing here talks to anybody.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ..budget import DEFAULT_TOKENS, Budget, meter_named
from ..clients.known import Client, client
from ..dialects.notice import META_KEY, READ_TOOL
from ..fit.images import dimensions
from ..jsontext.document import encode
from ..payload import read_result, shown
from ..redaction import Masking, Redactor
from .probe import Called, Probe

# One client of each kind.
CLIENTS: Final = (
    "claude-code",
    "codex-mcp-client",
    "gemini-cli-mcp-client",
    "opencode",
    "github-copilot-cli",
)
# A model can do without this many tokens of tool descriptions.
LIGHT_LIST: Final = 10_000
_EXAMPLES: Final = 3
_IN_PYTHON: Final = "https://github.com/mcp-envelope/mcp-envelope/blob/main/docs/servers.md"


class Score(NamedTuple):
    """How many calls passed, of how many; with none, the check does not apply. Only those that count fail a run."""

    name: str
    title: str
    passed: int
    of: int
    failing: Sequence[str] = ()
    counts: bool = True
    note: str = ""

    @property
    def is_pass(self) -> bool:
        return self.passed == self.of


def scores(found: Probe, by_client: Mapping[str, Probe] = MappingProxyType({})) -> list[Score]:
    """Score a probe. What a server answers may depend on the client, and then there is a probe as each of them."""
    results, known = _results(found), [client(name) for name in CLIENTS]
    by_each = [(by, _results(by_client.get(by.name, found))) for by in known]
    return [
        *(_fits(by, calls) for by, calls in by_each),
        _each("valid", "structured results match their output schema", found.calls, _is_valid),
        _pictures(results),
        _each(
            "reachable", "the rest of a large result can be read", results, _by_each(by_each, _is_reachable)
        ),
        _each("noted", "cuts are announced where models see it", results, _by_each(by_each, _is_noted)),
        _each("errors", "errors are explained, without a traceback", found.calls, _is_plain_failure),
        _each("secrets", "no secrets are exposed", results, _shows_no_secret),
        _twice(results),
        _weight(found.tools),
    ]


def _results(found: Probe) -> list[Called]:
    return [call for call in found.calls if call.result is not None and not call.is_mistake]


def is_enveloped(found: Probe) -> bool:
    """Whether the server has the envelope in itself, or a proxy in front, and so cuts for each client."""
    lists_it = any(tool["name"] == READ_TOOL for tool in found.tools)
    return lists_it or any(_notice(call) is not None for call in found.calls)


def is_good(found: Sequence[Score]) -> bool:
    return all(score.is_pass for score in found if score.counts)


def suggestions(
    found: Sequence[Score], calls: Sequence[Called], server: Sequence[str] | str, *, is_bare: bool
) -> list[str]:
    """Return what to do about the scores that are not full, settings included."""
    failed = {score.name for score in found if not score.is_pass}
    is_too_large = any(name.startswith("fits") for name in failed) or "reachable" in failed
    advice = []
    if is_too_large:
        largest = max(_tokens(call) for call in calls if call.result is not None)
        advice.append(f"The largest result has {largest:,} tokens, which is more than some clients accept.")
    if "secrets" in failed:
        advice.append(f'Results expose secrets. In mcp-envelope.toml: redact = "{_level(calls)}"')
    if is_bare and (is_too_large or "secrets" in failed):
        redact = ["--redact", _level(calls)] if "secrets" in failed else []
        behind = ["--url", server] if isinstance(server, str) else ["--", *server]
        advice.append(
            f"Put the proxy in front: {shlex.join(['mcp-envelope', 'proxy', *redact, *behind])}; "
            f"a Python server can include the envelope itself: {_IN_PYTHON}"
        )
    if "valid" in failed:
        advice.append(
            "Structured results violate the schema that the server lists; strict clients reject them."
        )
    if "errors" in failed:
        advice.append(
            "Report errors with isError and a sentence that says what to do; keep tracebacks in the log."
        )
    if "weight" in failed:
        advice.append(
            "The tool list is heavy: shorten the descriptions that are listed first here, or load tools on demand."
        )
    return advice


def _each(
    name: str,
    title: str,
    calls: Sequence[Called],
    passes: Callable[[Called], bool | None],
) -> Score:
    """Count the calls that pass; None leaves a call out."""
    judged = [(call, good) for call in calls if (good := passes(call)) is not None]
    failing = [_label(call) for call, good in judged if not good]
    return Score(name, title, len(judged) - len(failing), len(judged), failing[:_EXAMPLES])


def _label(call: Called, width: int = 60) -> str:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return f"{call.tool['name']}({arguments if len(arguments) <= width else arguments[: width - 1] + '…'})"


# -- what a model sees --------------------------------------------------------------------------------------


def _blocks(call: Called, with_images: bool = True) -> list[bytes]:
    blocks = (call.result or {}).get("content", ())
    return [encode(block) for block in blocks if with_images or block.get("type") != "image"]


def _structure(call: Called) -> bytes | None:
    structure = (call.result or {}).get("structuredContent")
    return None if structure is None else encode(structure)


def seen(call: Called, by: Client) -> bytes:
    """Return what the client shows its model, without the images."""
    structure, text = _structure(call), shown(_blocks(call, with_images=False))
    if by.lane == "both" and structure is not None:
        return text + structure
    return text if structure is None or by.lane == "content" else structure


def _budget(of: Client) -> Budget:
    limit = of.tokens or of.max_bytes or DEFAULT_TOKENS
    meter = "bytes" if of.tokens is None and of.max_bytes is not None else "exact"
    return Budget(limit, meter_named(meter), caps=of.caps)


def _is_within(call: Called, by: Client) -> bool:
    budget = _budget(by)
    is_error = (call.result or {}).get("isError")
    return (budget.for_errors if is_error else budget).holds(seen(call, by))


def _tokens(call: Called) -> int:
    return meter_named("exact").count(seen(call, client(CLIENTS[0])))


def _fits(by: Client, calls: Sequence[Called]) -> Score:
    budget = _budget(by)
    score = _each(
        f"fits {by.name}",
        f"results fit what {by.name} takes",
        calls,
        lambda call: _is_within(call, by),
    )
    return score._replace(note=f"{budget.limit:,} {budget.unit}")


# -- the checks ---------------------------------------------------------------------------------------------


def _is_valid(call: Called) -> bool | None:
    if "outputSchema" not in call.tool or call.result is None or call.result.get("isError"):
        return False if call.is_rejected else None
    return True


def _pictures(calls: Sequence[Called]) -> Score:
    """Count the images that a client of each kind would show."""
    most = min(known.image_bytes for name in CLIENTS if (known := client(name)).image_bytes is not None)
    images = [
        (call, block)
        for call in calls
        for block in (call.result or {}).get("content", ())
        if block.get("type") == "image"
    ]
    failing = [
        _label(call)
        for call, image in images
        if len(image["data"]) > most or dimensions(encode(image["data"])) is None
    ]
    passed, title = len(images) - len(failing), "images are small enough for clients to show"
    return Score("pictures", title, passed, len(images), failing[:_EXAMPLES])


def _notice(call: Called) -> Mapping[str, Any] | None:
    notice = (call.result or {}).get("_meta", {}).get(META_KEY)
    return notice if isinstance(notice, Mapping) and notice.get("truncated") else None


def _by_each(
    by_each: Sequence[tuple[Client, Sequence[Called]]], passes: Callable[[Called, Client], bool | None]
) -> Callable[[Called], bool | None]:
    """Judge a call by what each client got for it: it passes if none of them has anything against it."""
    answers = [(by, {_label(call, sys.maxsize): call for call in calls}) for by, calls in by_each]

    def judge(call: Called) -> bool | None:
        label = _label(call, sys.maxsize)
        verdicts = [passes(answer, by) for by, got in answers if (answer := got.get(label)) is not None]
        said = [verdict for verdict in verdicts if verdict is not None]
        return all(said) if said else None

    return judge


def _is_reachable(call: Called, by: Client) -> bool | None:
    """A result that was cut must be readable; of one that the client will cut or drop, the rest is lost."""
    if _notice(call) is not None:
        return bool(call.is_readable)
    return None if _is_within(call, by) else False


def _is_noted(call: Called, by: Client) -> bool | None:
    notice = _notice(call)
    return None if notice is None else str(notice.get("handle", "")).encode() in seen(call, by)


def _is_plain_failure(call: Called) -> bool | None:
    if call.is_rejected or (call.result is not None and not call.result.get("isError")):
        return None
    words = call.problem or shown(_blocks(call)).decode()
    return bool(words.strip()) and "Traceback (most recent call last)" not in words


def _level(calls: Sequence[Called]) -> str:
    """The least that must be masked so that no secrets are exposed."""
    leaking = [call for call in calls if not _shows_no_secret(call)]
    return "keys" if any(_shows_no_secret(call, "tokens") for call in leaking) else "tokens"


def _shows_no_secret(call: Called, level: str = "keys") -> bool:
    redactor, masking = Redactor(level, {}), Masking()
    for part in (*_blocks(call), _structure(call) or b"null"):
        redactor.redact_json(part, masking)
    return not masking.found


def _twice(calls: Sequence[Called]) -> Score:
    """Count the tokens that a client pays twice if it shows both lanes; the protocol asks for the repetition."""
    repeated = [call for call in calls if _repeats(call)]
    count = sum(meter_named("exact").count(_structure(call) or b"") for call in repeated)
    note = f"{count:,} tokens, {len(repeated)} of {len(calls)} results" if repeated else ""
    return Score(
        "twice", "text does not repeat the structure", len(calls) - len(repeated), len(calls), (), False, note
    )


def _repeats(call: Called) -> bool:
    structure = _structure(call)
    blocks = _blocks(call)
    if structure is None or not blocks:
        return False
    texts = [block["text"] for block in (call.result or {})["content"] if block.get("type") == "text"]
    return read_result(blocks, structure).blocks is None or encode("\n".join(texts)) in structure


def _weight(tools: Sequence[Mapping[str, Any]]) -> Score:
    count = meter_named("exact").count
    sizes = sorted(((count(encode(dict(tool))), tool["name"]) for tool in tools), reverse=True)
    total = sum(size for size, _ in sizes)
    heaviest = [f"{name}: {size:,} tokens" for size, name in sizes[:_EXAMPLES]]
    title = f"the tool list is light (at most {LIGHT_LIST:,} tokens)"
    return Score(
        "weight", title, int(total <= LIGHT_LIST), 1, heaviest, True, f"{total:,} tokens, {len(tools)} tools"
    )
