"""What to say when the library of an adapter isn't there."""

from __future__ import annotations


def missing(library: str, extra: str, error: ImportError) -> ImportError:
    """The error in words that lead on, for `raise … from error`. It still names the module that wasn't found."""
    words = f'{library} is needed here, and is not installed: pip install "mcp-envelope[{extra}]"'
    return ImportError(words, name=error.name, path=error.path)
