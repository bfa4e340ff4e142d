"""`mcp-envelope completion`: a script for the shell, made from the parsers of the commands.

Strategy: nothing runs while somebody types. All commands, options and the words that an argument can be are written
into the script; anything else is completed as a file. After `--`, the shell completes as it does by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib import import_module
from typing import Final

from ..clients.locations import CLIENTS
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


# `{words}` are the names of all commands, `{cases}` a case for each of them.
_BASH: Final = """\
_mcp_envelope() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words="" at
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    [[ "${{COMP_WORDS[at]}}" == -- ]] && {{ COMPREPLY=($(compgen -f -- "$word")); return; }}
  done
  if ((COMP_CWORD == 1)); then words="{words} --help --version"; else
    case "${{COMP_WORDS[1]}}" in
      help) words="{words}" ;;
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _mcp_envelope mcp-envelope
"""
_ZSH: Final = """\
#compdef mcp-envelope
_mcp_envelope() {{
  local -a choices
  if (( ${{words[(I)--]}} && ${{words[(I)--]}} < CURRENT )); then _normal -p mcp-envelope; return; fi
  if (( CURRENT == 2 )); then
    choices=({words})
    _describe command choices; return
  fi
  case ${{words[2]}} in
{cases}
  esac
  _describe argument choices || _files
}}
if [[ "${{funcstack[1]}}" == _mcp-envelope ]]; then _mcp_envelope "$@"
else compdef _mcp_envelope mcp-envelope; fi
"""


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    console.write_text({"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell]())
    return console.OK


def _known(command: str) -> dict[str, str]:
    """The words and the long options of a command, and what they are for."""
    parser: argparse.ArgumentParser = import_module(f".{command}", __package__).make_parser()
    options = {
        option: " ".join((action.help or "").replace("%%", "%").split())
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    return dict.fromkeys(_WORDS.get(command, ()), "") | options


def _bash() -> str:
    cases = [f'      {command}) words="{" ".join(_known(command))}" ;;' for command in COMMANDS]
    return _BASH.format(words=" ".join(["help", *COMMANDS]), cases="\n".join(cases))


def _zsh() -> str:
    def described(known: Mapping[str, str]) -> str:
        texts = (f"{word}:{about}" if about else word for word, about in known.items())
        return " ".join("'" + text.replace("'", "'\\''") + "'" for text in texts)

    cases = [f"    {command}) choices=({described(_known(command))}) ;;" for command in COMMANDS]
    return _ZSH.format(words=described(COMMANDS), cases="\n".join(cases))


def _fish() -> str:
    def quoted(about: str) -> str:
        return "'" + about.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = [f"-n __fish_use_subcommand -f -a {name} -d {quoted(about)}" for name, about in COMMANDS.items()]
    for command in COMMANDS:
        for word, about in _known(command).items():
            what = f"-l {word[2:]} -d {quoted(about)}" if word.startswith("--") else f"-a {word}"
            lines.append(f"-n '__fish_seen_subcommand_from {command}' {what}")
    return "".join(f"complete -c mcp-envelope {line}\n" for line in lines)


def make_parser() -> Parser:
    parser = Parser("completion", "bash|zsh|fish", _DESCRIPTION, _EPILOG, takes="shell")
    shells = "|".join(_SHELLS)
    parser.add_argument("shell", metavar=shells, type=console.one_of(_SHELLS), help="which shell")
    return parser
