"""`mcp-envelope completion`: a script for the shell, made from the parsers of the commands.

Strategy: nothing runs while somebody types. All commands, options and the words that an argument can be are written
into the script, and the values of options that take one of a few; anything else is completed as a file. Options are
offered once a dash is typed. After `--`, the shell completes as it does by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Final, NamedTuple

from ..budget import METERS
from ..clients.locations import CLIENTS
from ..dialects import NAMES
from . import console
from .console import Parser
from .hook import HOSTS
from .main import COMMANDS

_DESCRIPTION: Final = """\
Print a script that completes commands and options.
"""
_EPILOG: Final = """\
examples:
  mcp-envelope completion bash >> ~/.bashrc
  mcp-envelope completion zsh > "${fpath[1]}/_mcp-envelope"
  mcp-envelope completion fish > ~/.config/fish/completions/mcp-envelope.fish
"""
_SHELLS: Final = ("bash", "zsh", "fish")
# What the first word after a command can be.
_WORDS: Final = {
    "wrap": CLIENTS,
    "unwrap": CLIENTS,
    "vault": ("list", "stats", "purge"),
    "config": ("schema",),
    "completion": _SHELLS,
    "hook": tuple(HOSTS),
}
# The values of options that are checked with more than a list.
_VALUES: Final[Mapping[str, tuple[str, ...]]] = {"--meter": METERS, "--dialect": NAMES}


# `{words}` are the names of all commands, `{cases}` cases for what follows each of them.
_BASH: Final = """\
_mcp_envelope() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words="" without=() at
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    [[ "${{COMP_WORDS[at]}}" == -- ]] && {{ COMPREPLY=($(compgen -f -- "$word")); return; }}
  done
  if ((COMP_CWORD == 1)); then words="{words} --help --version"; else
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD-1]}}" in
{cases}
    esac
  fi
  [[ "$word" == -* ]] || without=(-X '-*')
  COMPREPLY=($(compgen -W "$words" "${{without[@]}}" -- "$word"))
}}
complete -o default -F _mcp_envelope mcp-envelope
"""
_ZSH: Final = """\
#compdef mcp-envelope
_mcp_envelope() {{
  local -a choices
  if (( ${{words[(I)--]}} && ${{words[(I)--]}} < CURRENT )); then _normal -p mcp-envelope; return; fi
  if (( CURRENT == 2 )); then
    {words}
    _describe command choices; return
  fi
  case "${{words[2]}} ${{words[CURRENT-1]}}" in
{cases}
  esac
  [[ $PREFIX == -* ]] || choices=(${{choices:#-*}})
  _describe argument choices || _files
}}
if [[ "${{funcstack[1]}}" == _mcp-envelope ]]; then _mcp_envelope "$@"
else compdef _mcp_envelope mcp-envelope; fi
"""


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    console.write_text({"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell]())
    return console.OK


class _Following(NamedTuple):
    """What can follow a command, and what it is for; and what can follow an option that takes a value."""

    words: dict[str, str]
    values: dict[str, tuple[str, ...]]


def _known(command: str) -> _Following:
    if command == "help":
        return _Following(dict(COMMANDS), {})
    parser: argparse.ArgumentParser = import_module(f".{command}", __package__).make_parser()
    words, values = dict.fromkeys(_WORDS.get(command, ()), ""), {}
    for action in parser._actions:
        for option in action.option_strings:
            if option.startswith("--"):
                words[option] = " ".join((action.help or "").replace("%%", "%").split())
                if action.nargs is None:
                    few = action.type.args[0] if isinstance(action.type, partial) else _VALUES.get(option, ())
                    values[option] = tuple(few)
    return _Following(words, values)


def _cases(described: Callable[[Mapping[str, str]], str]) -> str:
    """The cases of a command and the word before the one that is completed, for bash and zsh."""
    lines = []
    for command in ("help", *COMMANDS):
        known = _known(command)
        lines += [
            f"      '{command} {option}') {described(dict.fromkeys(few, ''))} ;;"
            for option, few in known.values.items()
        ]
        lines.append(f"      '{command} '*) {described(known.words)} ;;")
    return "\n".join(lines)


def _bash() -> str:
    cases = _cases(lambda words: f'words="{" ".join(words)}"')
    return _BASH.format(words=" ".join(["help", *COMMANDS]), cases=cases)


def _zsh() -> str:
    def listed(words: Mapping[str, str]) -> str:
        texts = (f"{word}:{about}" if about else word for word, about in words.items())
        return f"choices=({' '.join(_quoted(text) for text in texts)})"

    return _ZSH.format(words=listed(COMMANDS), cases=_cases(listed))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish() -> str:
    lines = [f"-n __fish_use_subcommand -f -a {name} -d {_quoted(about)}" for name, about in COMMANDS.items()]
    for command in ("help", *COMMANDS):
        known = _known(command)
        for word, about in known.words.items():
            what = f"-l {word[2:]} -d {_quoted(about)}" if word.startswith("--") else f"-a {word}"
            if few := known.values.get(word):
                what += f" -x -a {_quoted(' '.join(few))}"
            elif word in known.values:
                what += " -r"
            lines.append(f"-n '__fish_seen_subcommand_from {command}' {what}")
    return "".join(f"complete -c mcp-envelope {line}\n" for line in lines)


def make_parser() -> Parser:
    parser = Parser("completion", "bash|zsh|fish", _DESCRIPTION, _EPILOG, takes="shell")
    shells = "|".join(_SHELLS)
    parser.add_argument("shell", metavar=shells, type=console.one_of(_SHELLS), help="which shell")
    return parser
