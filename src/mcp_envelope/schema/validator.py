"""The validator: all that we ask of jsonschema-rs.

Strategy: documents, patterns and keys are a stranger's, so it may not fetch, gets linear-time patterns where
they suffice and a small allowance for backtracking where they don't, and shows no values in its messages. Of
its errors we report the one that was most likely meant. It is imported only by the functions that need it:
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
# An instance may fail in endless ways; the first few will tell.
_MAX_ERRORS: Final = 50


def compiled(document: Mapping[str, Any] | bool) -> jsonschema_rs.Validator:
    """A validator for the document, which fetches nothing; SchemaError if there can't be one."""
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
    """Where an instance fails, as a JSON pointer, and why: of the errors, the one furthest inside."""
    try:
        found = [_culprit(error) for error in islice(validator.iter_errors(instance), _MAX_ERRORS)]
    except ValueError:
        # The value at fault is handed over as Python has it, and Python takes no number of 5,000 digits.
        return None
    if not found:
        return None
    worst = max(found, key=lambda error: len(error.instance_path))
    return pointer_of(worst.instance_path), _shortened(worst.message)


def may_match(pattern: str, key: str) -> bool:
    """Whether a key matches a pattern, or can't be told."""
    matcher = _matcher(pattern)
    try:
        return matcher is None or matcher.is_valid(key)
    except ValueError:
        return True


@lru_cache(maxsize=1024)
def _matcher(pattern: str) -> jsonschema_rs.Validator | None:
    """A linear-time matcher: keys come from the payload, patterns from the schema, neither is trusted."""
    import jsonschema_rs

    for options in _pattern_options():
        try:
            return jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=options)
        except ValueError:
            continue
    return None


@cache
def _pattern_options() -> tuple[jsonschema_rs.RegexOptions, jsonschema_rs.FancyRegexOptions]:
    """Ways to read a pattern, in the order to be tried: the second knows lookarounds."""
    import jsonschema_rs

    return (
        jsonschema_rs.RegexOptions(size_limit=_REGEX_LIMIT, dfa_size_limit=_REGEX_LIMIT),
        jsonschema_rs.FancyRegexOptions(
            backtrack_limit=_BACKTRACK_LIMIT, size_limit=_REGEX_LIMIT, dfa_size_limit=_REGEX_LIMIT
        ),
    )


def _culprit(error: jsonschema_rs.ValidationError) -> jsonschema_rs.ValidationError:
    """The error inside the branch that the instance came nearest to matching."""
    import jsonschema_rs

    kinds = jsonschema_rs.ValidationErrorKind
    while isinstance(error.kind, kinds.AnyOf | kinds.OneOfNotValid):
        here = len(error.instance_path)
        deepest: jsonschema_rs.ValidationError | None = None
        fewest = 0
        for branch in error.kind.context:
            # A branch for another type, or another constant, isn't the one that was meant.
            if not branch or any(
                isinstance(part.kind, kinds.Type) and len(part.instance_path) == here for part in branch
            ):
                continue
            if any(isinstance(part.kind, kinds.Constant) for part in branch) and deepest is not None:
                continue
            candidate = max(branch, key=lambda part: len(part.instance_path))
            if deepest is None or (len(candidate.instance_path), -len(branch)) > (
                len(deepest.instance_path),
                -fewest,
            ):
                deepest, fewest = candidate, len(branch)
        if deepest is None:
            break
        error = deepest
    return error


def _shortened(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= 200 else line[:199] + "…"
