"""The validator: everything that we use jsonschema-rs for.

Strategy: documents, patterns and keys come from strangers. So the validator fetches nothing, matches patterns in
linear time where possible and with little backtracking elsewhere, and shows no values in its messages. Of its
errors we report the one closest to what was meant. The library is imported only by the functions that need it:
that takes longer than importing all the rest of us, and many results have no schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from .document import SchemaError, pointer_of

if TYPE_CHECKING:
    import jsonschema_rs

_REGEX_LIMIT: Final = 1 << 22
_BACKTRACK_LIMIT: Final = 10_000
# An instance may fail in endless ways; the first few are enough.
_MAX_ERRORS: Final = 50


def compiled(document: Mapping[str, Any] | bool) -> jsonschema_rs.Validator:
    """Return a validator for the document; raise SchemaError if there can't be one."""
    import jsonschema_rs

    failure: ValueError | None = None
    body = document if isinstance(document, bool) else dict(document)
    for options in _pattern_options():
        try:
            # The mask keeps the payload's values out of messages that may be shown or logged.
            return jsonschema_rs.validator_for(body, offline=True, pattern_options=options, mask="the value")
        except jsonschema_rs.ValidationError as error:
            culprit = _culprit(error)
            failure = SchemaError(_shortened(culprit.message), pointer_of(culprit.instance_path))
            if '"regex"' not in error.message:
                break
        except ValueError as error:
            failure = SchemaError(_shortened(str(error)))
            break
    assert failure is not None
    raise failure


def deepest_error(validator: jsonschema_rs.Validator, instance: Any) -> tuple[str, str] | None:
    """Return where an instance fails, as a JSON pointer, and why: the error furthest inside."""
    try:
        found = [_culprit(error) for error in islice(validator.iter_errors(instance), _MAX_ERRORS)]
    except ValueError:
        # The value at fault becomes a Python value, and Python takes no number of 5,000 digits.
        return None
    if not found:
        return None
    worst = max(found, key=lambda error: len(error.instance_path))
    return pointer_of(worst.instance_path), _shortened(worst.message)


def may_match(pattern: str, key: str) -> bool:
    """Whether a key matches a pattern, or may match one that can't be compiled."""
    matcher = _matcher(pattern)
    try:
        return matcher is None or matcher.is_valid(key)
    except ValueError:
        return True


@lru_cache(maxsize=1024)
def _matcher(pattern: str) -> jsonschema_rs.Validator | None:
    """Return a matcher of bounded cost: neither keys (from payloads) nor patterns (from schemas) are trusted."""
    import jsonschema_rs

    for options in _pattern_options():
        try:
            return jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=options)
        except ValueError:
            continue
    return None


@cache
def _pattern_options() -> tuple[jsonschema_rs.RegexOptions, jsonschema_rs.FancyRegexOptions]:
    """Return the ways to compile a pattern, in the order to try them: the second supports lookarounds."""
    import jsonschema_rs

    return (
        jsonschema_rs.RegexOptions(size_limit=_REGEX_LIMIT, dfa_size_limit=_REGEX_LIMIT),
        jsonschema_rs.FancyRegexOptions(
            backtrack_limit=_BACKTRACK_LIMIT, size_limit=_REGEX_LIMIT, dfa_size_limit=_REGEX_LIMIT
        ),
    )


def _culprit(error: jsonschema_rs.ValidationError) -> jsonschema_rs.ValidationError:
    """Return the error inside the branch that the instance came closest to matching."""
    import jsonschema_rs

    kinds = jsonschema_rs.ValidationErrorKind

    def depth(part: jsonschema_rs.ValidationError) -> int:
        return len(part.instance_path)

    while isinstance(error.kind, kinds.AnyOf | kinds.OneOfNotValid):
        best: tuple[tuple[int, int], jsonschema_rs.ValidationError] | None = None
        for branch in error.kind.context:
            # A branch for another type, or another constant, isn't the one that was meant.
            if not branch or any(isinstance(p.kind, kinds.Type) and depth(p) == depth(error) for p in branch):
                continue
            if best is not None and any(isinstance(part.kind, kinds.Constant) for part in branch):
                continue
            deepest = max(branch, key=depth)
            rank = depth(deepest), -len(branch)
            if best is None or rank > best[0]:
                best = rank, deepest
        if best is None:
            break
        error = best[1]
    return error


def _shortened(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= 200 else line[:199] + "…"
