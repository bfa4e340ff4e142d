r"""Secrets taken out of string values, before anything is measured or stored.

Strategy: almost every payload is clean, so the clean case has to be nearly free. Each pattern has a trigger, a
looser expression that is true of the raw JSON wherever the pattern is true of a decoded value. The triggers are
run by the linear-time regex engine inside jsonschema-rs (a validator whose only rule is "one of these patterns
occurs"), which reads gigabytes a second; a clean document is returned as the same object. Where a trigger is
true, the place is narrowed by halving, the string values around it are found by counting quotes, and only
these are decoded, looked at by `re` and, if changed, written again. Everything else keeps its exact bytes.
An escape that could hide a letter (`\u0041`) is a trigger too, so spelling is no hiding place.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import jsonschema_rs

from .jsontree import sniff

Scan: TypeAlias = Callable[[str], bool]

# The name under which values of telling keys and assignments (`password=…`) are counted.
CREDENTIAL: Final = "credential"

_CHUNK: Final = 1 << 17  # what is scanned at once
_LEAF: Final = 1 << 11  # where halving stops
_OVERLAP: Final = 1 << 10  # no trigger is longer
_REACH: Final = 1 << 15  # no built-in match is longer
_MARGIN: Final = 1 << 9  # no built-in match starts farther before its trigger
_INNER: Final = 8  # JSON in a string in JSON, so many times

_MARK: Final = re.compile(r"\[redacted:[A-Za-z0-9_.-]{1,64}\]")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
# Escapes that may stand for a character of a trigger, and for the two letters that fold to `k` and `s`.
_HIDING: Final = r"\\u(?:00[2-7]|017[fF]|212[aA])"

# A token starts where no word goes on; the `n` of an escaped line break is no word.
_L: Final = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
_R: Final = r"(?![A-Za-z0-9_-])"

# Tokens that tell themselves by their prefix. The expression is pattern and trigger in one.
_TOKENS: Final = {
    "anthropic_key": r"sk-ant-[A-Za-z0-9_-]{20,}",
    "atlassian_token": r"ATATT3[A-Za-z0-9_=-]{60,}",
    "databricks_token": r"dapi[0-9a-f]{32}",
    "digitalocean_token": r"do[opr]_v1_[0-9a-f]{64}",
    "docker_token": r"dckr_pat_[A-Za-z0-9_-]{27,}",
    "github_token": r"(?:gh[oprsu]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})",
    "gitlab_token": r"gl(?:pat|ptt|oas|cbt|soat|rt|dt)-[A-Za-z0-9_-]{20,}",
    "google_oauth": r"(?:ya29\.[A-Za-z0-9_-]{30,}|GOCSPX-[A-Za-z0-9_-]{28})",
    "huggingface_token": r"hf_[A-Za-z]{34}",
    "pypi_token": r"pypi-AgE[A-Za-z0-9_-]{50,}",
    "sendgrid_key": r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
    "shopify_token": r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    "slack_token": r"(?:xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{20,})",
    "stripe_key": r"(?:[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+]{24,})",
    "vault_token": r"hv[bs]\.[A-Za-z0-9_-]{24,}",
}
# The same for prefixes that also occur inside words or blobs: these need an edge on both sides.
_EDGED: Final = {
    "aws_access_key": r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}",
    "google_api_key": r"AIza[A-Za-z0-9_-]{35}",
    "npm_token": r"npm_[A-Za-z0-9]{36}",
    "openai_key": r"sk-(?:(?:proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,})",
    "telegram_token": r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    "twilio_key": r"SK[0-9a-f]{32}",
}
# Names whose values are secrets, and tokens that only page through results or belong to a vocabulary.
_NAMES: Final = (
    "password|passwd|passphrase|passcode|pwd|secret|token|credentials?"
    "|(?:api|access|secret|private|account|shared|signing|encryption|auth)[_-]?key"
)
_HARMLESS: Final = (
    "next|page|prev|previous|continuation|cursor|progress|sync|resume|start|end|stop"
    "|eos|bos|pad|unk|mask|sep|cls|special"
)
SENSITIVE_KEYS: Final = (
    rf"(?i:^(?!.*(?:{_HARMLESS})[_-]?token[0-9]*$).*(?:{_NAMES}|authorization|secret[_-]?access[_-]?key)[0-9]*$)"
)
_NOT_PAGING: Final = "".join(
    f"(?<!{word}{joint}token)" for word in _HARMLESS.split("|") for joint in ("", "_", "-")
)
# Values that name a secret or stand for one, and are none.
_STAND_IN: Final = (
    r"(?:\$\{?[A-Za-z_]|\$\(|%[A-Z_]+%|\{\{|<[A-Za-z]|[*•.xX]+(?![^\s\"',;&]))"
    r"|(?i:(?:none|null|nil|true|false|undefined|required|optional|string|str|bytes|any|unset|n/a)(?![^\s\"',;&)]))"
)
_PLAIN: Final = re.compile(rf"\s*(?:{_STAND_IN}|$)")

# pattern, trigger: for what needs its surroundings. The group `secret` is what goes.
_CONTEXT: Final = {
    "private_key": (
        r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-]{0,8192}(?:-[^-]{1,8192}){0,3}-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
        r"|(?:\s|\\[nr])*[A-Za-z0-9+/=]{40}[A-Za-z0-9+/=\s\\]{0,16384})",
        r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY",
    ),
    "jwt": (
        _L + r"eyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,12000}(?:\.[A-Za-z0-9_-]{0,6000}){1,3}",
        r"eyJ[A-Za-z0-9_-]{10}[A-Za-z0-9_-]*\.[A-Za-z0-9_-]",
    ),
    "slack_webhook": (
        r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9_/+-]{20,200})",
        r"hooks\.slack\.com",
    ),
    "azure_key": (
        r"(?:(?:Account|SharedAccess)Key=|[?&]sig=)(?P<secret>[A-Za-z0-9+/%]{40,256}={0,2})",
        r"(?:(?:Account|SharedAccess)Key=|[?&]sig=)",
    ),
    "authorization": (
        r"(?:(?i:authorization)[\"'\s\\]{0,4}[:=,][\"'\s\\]{0,4}(?i:basic|bearer|token|apikey)[ ]"
        r"(?P<secret>[A-Za-z0-9._~+/=-]{6,8192})"
        r"|" + _L + r"(?:[Bb]earer|BEARER)[ ](?P<secret2>(?=[A-Za-z._~+/-]{0,64}[0-9])[A-Za-z0-9._~+/-]{20,8192}={0,2})"
        r"|" + _L + r"Basic[ ](?P<secret3>(?=[A-Za-z]{0,64}[0-9+/=])[A-Za-z0-9+/]{12,4096}={0,2})" + _R + ")",
        r"(?i:basic|bearer|token|apikey) [A-Za-z0-9._~+/=\\-]{6}",
    ),
    "url_password": (
        r"[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/?#:@\"'<>]{0,256}:"
        rf"(?!{_STAND_IN}|\[redacted:)(?P<secret>[^\s/\"'<>]{{1,256}})@",
        r':\\?/\\?/[^\s/?#:@"]*:[^\s/"]+@',
    ),
    CREDENTIAL: (
        rf"(?i:{_NAMES})(?i:{_NOT_PAGING})[0-9]{{0,3}}"
        # Like JSON: both sides in quotes. What the quotes hold is the value, spaces included.
        rf"(?:\"\s{{0,8}}:\s{{0,8}}\"(?!{_STAND_IN}|\[redacted:)(?P<secret>(?:[^\"\\]|\\.){{1,4096}}+)"
        # A quoted value without spaces, as in code and configuration.
        rf"|[\"'\]]{{0,2}}\s{{0,8}}(?::?=>?|:)\s{{0,8}}(?P<quote>[\"'])(?!{_STAND_IN}|\[redacted:)"
        r"(?P<secret2>[^\s\"'\\]{3,4096})(?P=quote)"
        # In a query or a connection string.
        rf"|(?<=[;&?][A-Za-z _-]{{0}})=(?!)"
        rf"|[ ]?=[ ]?(?!{_STAND_IN}|[/~.]|\[redacted:)(?P<secret3>[^\s\"'`,;&|<>()\[\]{{}}\\]{{4,4096}})(?=[;&]|\\n|\r?\n|\Z)"
        r")",
        rf"(?i:{_NAMES})[0-9]{{0,3}}(?:[\"'\]\\]|\s|:|=)",
    ),
}
