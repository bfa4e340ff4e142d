"""What secrets look like: the built-in patterns, and their triggers in raw JSON.

Strategy: a pattern is exact and slow, a trigger is loose and fast; a trigger matches the raw JSON wherever its
pattern matches a decoded value. Many tokens are recognized by their prefix, other secrets only by their
context. A group whose name begins with `secret` is the part to mask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

# The name under which values of sensitive keys and assignments (`password=…`) are counted.
CREDENTIAL: Final = "credential"

# A token doesn't start inside a word; the `n` of an escaped line break isn't part of a word.
_L: Final = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
_R: Final = r"(?![A-Za-z0-9_-])"

# Tokens with a distinctive prefix. The expression is both pattern and trigger.
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
    "stripe_key": r"(?:(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+]{24,})",
    "vault_token": r"hv[bs]\.[A-Za-z0-9_-]{24,}",
}
# The same for prefixes that also occur inside words or blobs: these need an edge on both sides.
_EDGED: Final = {
    "aws_access_key": r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}",
    "google_api_key": r"AIza[A-Za-z0-9_-]{35}",
    "npm_token": r"npm_[A-Za-z0-9]{36}",
    "openai_key": r"sk-(?:(?:proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,})",
    "twilio_key": r"SK[0-9a-f]{32}",
}
# Names whose values are secrets; in groups, because the engine is fast when it looks for few prefixes.
_NAME_GROUPS: Final = (
    "pass(?:word|wd|phrase|code)|credentials?",
    "pwd|secret(?:[_-]?key)?|token",
    "(?:api|access)[_-]?key",
    "(?:account|auth)[_-]?key|authorization",
    "(?:private|shared|signing|encryption)[_-]?key",
)
_NAMES: Final = "|".join(_NAME_GROUPS).replace("|authorization", "")
_NAMED: Final = [rf"(?i:(?:{group})[0-9]{{0,3}}(?:[\"'\\]|\s{{0,8}}[:=]))" for group in _NAME_GROUPS]
# Tokens that only page through results, or belong to a vocabulary.
_HARMLESS: Final = (
    "next|page|prev|previous|continuation|cursor|progress|sync|resume|start|end|stop|input|output|request"
    "|eos|bos|pad|unk|mask|sep|cls|special"
)
SENSITIVE_KEYS: Final = rf"(?i:^(?!.*(?:{_HARMLESS})[_-]?token\d*$).*(?:{_NAMES}|authorization)\d*$)"
_NOT_PAGING: Final = "".join(
    f"(?<!{word}{joint}token)" for word in _HARMLESS.split("|") for joint in ("", "_", "-")
)
# Placeholders: values that refer to a secret but aren't one.
_DUMMY: Final = (
    r"(?:\$\{|\$\(|\$[A-Z_]+(?![^\s\"',;&@])|%[A-Z_]+%|%\(|\{{1,2}[A-Za-z_ ]|<[A-Za-z]|[*•.xX]+(?![^\s\"',;&@])"
    r"|(?i:none|null|nil|true|false|undefined|required|optional|string|str|bytes|any|unset|n/a)"
    r"(?![^\s\"',;&@)])|\[redacted:)"
)
PLAIN: Final = re.compile(rf"\s*(?:{_DUMMY}\S*\s*)?\Z")
PATH: Final = re.compile(r"[/~.]|[A-Za-z]:[\\/]")
# A character of an unquoted value.
_V: Final = r"[^\s\"'`,;&|<>()\[\]{}\\]"
# `config.password` is code.
_ATTRIBUTE: Final = rf"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?!{_V})"

# (pattern, triggers) for secrets that are recognized by their context. Groups named `secret…` are masked.
_CONTEXT: Final = {
    "private_key": (
        r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?=(?:[^-]|-(?!-)){0,600}?[A-Za-z0-9+/=]{32})(?:[^-]|-(?!----)){0,16384}"
        r"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
        # Cut off: as far as it looks like a key.
        r"|(?=(?:\s|\\[nr]){0,8}[A-Za-z0-9+/=]{40})(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{8,}+){1,400})",
        r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY",
    ),
    "telegram_token": (rf"(?<![0-9])[0-9]{{8,10}}:AA[A-Za-z0-9_-]{{33}}{_R}", r":AA[A-Za-z0-9_-]{33}"),
    "jwt": (
        rf"{_L}eyJ[A-Za-z0-9_-]{{10,1000}}\.[A-Za-z0-9_-]{{10,12000}}(?:\.[A-Za-z0-9_-]{{0,4000}}){{1,3}}",
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
    "aws_secret_key": (
        r"(?i:secret[_-]?(?:access[_-]?)?key)[\"'\s\\]{0,4}[:=]>?[\"'\s\\]{0,4}"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        *_NAMED,
    ),
    "authorization": (
        r"(?:(?i:authorization)[\"'\s\\]{0,4}[:=][\"'\s\\]{0,4}(?i:basic|bearer|token|apikey) "
        r"(?P<secret>[A-Za-z0-9._~+/=-]{6,8192})"
        rf"|{_L}(?:[Bb]earer|BEARER) (?P<secret2>(?=[A-Za-z._~+/-]{{0,64}}[0-9])"
        r"[A-Za-z0-9._~+/-]{20,8192}={0,2})"
        rf"|{_L}Basic (?P<secret3>(?=[A-Za-z]{{0,64}}[0-9+/=])[A-Za-z0-9+/]{{12,4096}}={{0,2}}){_R})",
        *_NAMED,
        r"(?:Basic|[Bb]earer|BEARER) [A-Za-z0-9._~+/=\\-]{12}",
    ),
    "url_password": (
        r"[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/?#:@\"'<>]{0,256}:"
        rf"(?!{_DUMMY})(?P<secret>[^\s/\"'<>]{{1,256}})@",
        r'//[^\s/?#:@"]*:[^\s/"]+@',
        r'\\/[^\s/?#:@"]*:[^\s/"]+@',
    ),
    CREDENTIAL: (
        rf"(?i:{_NAMES})(?i:{_NOT_PAGING})[0-9]{{0,3}}(?:"
        # Name and value in quotes, as in JSON: the value may contain spaces.
        rf"\"\s{{0,8}}:\s{{0,8}}\"(?!{_DUMMY})(?P<secret>(?:[^\"\\]|\\.){{1,4096}})"
        # A quoted value without spaces, as in code and configuration.
        rf"|(?:[\"']\]?)?\s{{0,8}}(?::=|=>|=|:)\s{{0,8}}(?P<quote>[\"'])(?!{_DUMMY})"
        r"(?P<secret2>[^\s\"'\\]{3,4096})(?P=quote)"
        # An unquoted value with a digit that isn't code: `password=hunter2`.
        rf"|[ ]?=[ ]?(?!{_DUMMY}|[/~.]|{_ATTRIBUTE})(?={_V}{{0,256}}[0-9])(?P<secret3>{_V}{{4,4096}}+)(?![(\[])"
        # A single word, where it can't be anything else: in a query, a connection string, a line of settings.
        rf"|=(?!{_DUMMY}|[/~.]|{_ATTRIBUTE}|\w{{0,40}}?(?i:{_NAMES})(?!{_V}))"
        rf"(?P<secret4>{_V.replace('[^', '[^=')}{{4,4096}}+={{0,2}})(?=[;&]|\\[nr]|[ \t\r]{{0,8}}$)"
        # `password: hunter2`, but not a plain number or a date.
        rf"|:[ \t]{{0,8}}(?!{_DUMMY}|[/~.]|{_ATTRIBUTE}|[0-9.,:%-]+(?!{_V}))(?={_V}{{0,256}}[0-9])"
        rf"(?P<secret5>{_V}{{6,4096}}+)(?=[\s,;\\]|$))",
        *_NAMED,
    ),
}


def _built_in() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    # Private keys first, because other patterns may match inside them.
    for name in ("private_key", *_TOKENS, *_EDGED, *list(_CONTEXT)[1:]):
        if name in _CONTEXT:
            pattern, *triggers = _CONTEXT[name]
            yield name, pattern, tuple(triggers)
        else:
            token = _TOKENS.get(name) or _EDGED[name]
            yield name, token if name in _TOKENS else f"{_L}{token}{_R}", (token,)


BUILT_IN: Final[Mapping[str, str]] = MappingProxyType({name: pattern for name, pattern, _ in _built_in()})
TRIGGERS: Final = {
    SENSITIVE_KEYS: tuple(_NAMED),
    **{pattern: triggers for _, pattern, triggers in _built_in()},
}
