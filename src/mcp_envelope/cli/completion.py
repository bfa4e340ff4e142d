"""`mcp-envelope completion`: a script for the shell, made from the parsers of the commands.

Strategy: nothing runs while somebody types. All commands, options and the words that an argument can be are written
into the script; anything else is completed as a file. After `--`, the shell completes as it does by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from typing import Final, NamedTuple

from ..clients.locations import CLIENTS
from . import console
from .console import Parser
from .hook import HOSTS

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


class CompletedCommand(NamedTuple):
    name: str
    about: str
    words: tuple[str, ...]
    # Long options, and what they are for.
    options: tuple[tuple[str, str], ...]


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell]
    console.write_text("\n".join(write(list(_commands()))) + "\n")
    return console.OK


def _commands() -> Iterator[CompletedCommand]:
    from .main import COMMANDS

    for name, about in COMMANDS.items():
        parser: argparse.ArgumentParser = import_module(f".{name}", __package__).make_parser()
        options = {
            option: (action.help or "").replace("%%", "%")
            for action in parser._actions
            for option in action.option_strings
            if option.startswith("--")
        }
        yield CompletedCommand(name, about, tuple(_WORDS.get(name, ())), tuple(options.items()))


def _bash(commands: list[CompletedCommand]) -> Iterator[str]:
    names = " ".join(["help", *(command.name for command in commands)])
    yield "_mcp_envelope() {"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" words="" at'
    yield "  COMPREPLY=()"
    yield "  for ((at = 1; at < COMP_CWORD; at++)); do"
    yield '    [[ "${COMP_WORDS[at]}" == -- ]] && { COMPREPLY=($(compgen -f -- "$word")); return; }'
    yield "  done"
    yield f'  if ((COMP_CWORD == 1)); then words="{names} --help --version"; else'
    yield '    case "${COMP_WORDS[1]}" in'
    yield f'      help) words="{names}" ;;'
    for command in commands:
        known = " ".join([*command.words, *(option for option, _ in command.options)])
        yield f'      {command.name}) words="{known}" ;;'
    yield "    esac"
    yield "  fi"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "}"
    yield "complete -o default -F _mcp_envelope mcp-envelope"


def _zsh(commands: list[CompletedCommand]) -> Iterator[str]:
    yield "#compdef mcp-envelope"
    yield "_mcp_envelope() {"
    yield "  local -a choices"
    yield "  if (( ${words[(I)--]} && ${words[(I)--]} < CURRENT )); then _normal -p mcp-envelope; return; fi"
    yield "  if (( CURRENT == 2 )); then"
    yield f"    choices=({' '.join(_described(each.name, each.about) for each in commands)})"
    yield "    _describe command choices; return"
    yield "  fi"
    yield "  case ${words[2]} in"
    for command in commands:
        known = [_described(word, "") for word in command.words]
        known += [_described(option, about) for option, about in command.options]
        yield f"    {command.name}) choices=({' '.join(known)}) ;;"
    yield "  esac"
    yield "  _describe argument choices || _files"
    yield "}"
    yield 'if [[ "${funcstack[1]}" == _mcp-envelope ]]; then _mcp_envelope "$@"'
    yield "else compdef _mcp_envelope mcp-envelope; fi"


def _described(word: str, about: str) -> str:
    text = f"{word}:{_single(about)}" if about else word
    return "'" + text.replace("'", "'\\''") + "'"


def _fish(commands: list[CompletedCommand]) -> Iterator[str]:
    first = "__fish_use_subcommand"
    for command in commands:
        yield f"complete -c mcp-envelope -n {first} -f -a {command.name} -d {_fish_text(command.about)}"
    for command in commands:
        seen = f"'__fish_seen_subcommand_from {command.name}'"
        for word in command.words:
            yield f"complete -c mcp-envelope -n {seen} -a {word}"
        for option, about in command.options:
            yield f"complete -c mcp-envelope -n {seen} -l {option[2:]} -d {_fish_text(about)}"


def _fish_text(about: str) -> str:
    return "'" + _single(about).replace("\\", "\\\\").replace("'", "\\'") + "'"


def _single(about: str) -> str:
    return " ".join(about.replace(":", "").split())


def make_parser() -> Parser:
    parser = Parser("completion", "bash|zsh|fish", _DESCRIPTION, _EPILOG, takes="shell")
    shells = "|".join(_SHELLS)
    parser.add_argument("shell", metavar=shells, type=console.one_of(_SHELLS), help="which shell")
    return parser
