r"""What secrets look like: a table of rules, and how a candidate is judged.

Strategy: a rule's expression (RE2, over the bytes of a decoded string) proposes a candidate, and its check decides.
A checksum is best; next comes a structure that can be decoded; otherwise the candidate must be as random as a key
is, and not one of the examples that documentation is full of. Each rule has a trigger, a looser and shorter
expression that matches the raw JSON wherever the rule matches a decoded string; all triggers together form one
set, which is searched in a single pass. In the level `tokens`, a secret is recognized by its own shape; the level
`keys` adds values that are secrets because of the name before them.
"""

from __future__ import annotations

import itertools
import re
from base64 import b64decode, urlsafe_b64decode
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from math import log2
from typing import Final, Literal, NamedTuple
from zlib import crc32

Level = Literal["tokens", "keys"]
LEVELS: Final[tuple[Level, ...]] = ("tokens", "keys")
Check = Callable[[str], bool]


class Rule(NamedTuple):
    """What a group `secret…` matches is masked, or else the whole match. With `edged`, it is not inside a word.

    A rule with a group `name…` matches an assignment, and is judged by `is_secret`.
    """

    name: str
    pattern: str
    trigger: str
    check: Check
    edged: bool = True


# -- judging a candidate ------------------------------------------------------------------------------------

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_EXAMPLE: Final = re.compile(
    r"example|placeholder|dummy|sample|changeme|change[_-]me|redacted|your|insert|xxxx|\*\*\*|\.\.\.|fake|todo|here$",
    re.IGNORECASE,
)
# Digests of published keys: Stripe's two test keys, Azurite's, the Cosmos DB emulator's; GitHub's own example.
_PUBLISHED: Final = {"458c614e", "0ee0e6b4", "8cb332bf", "f4d2602a", "2dc47df5"}
# How long a run of neighbours (abcdef, 123456) may be in a random text.
_RUN: Final = 6


def entropy(text: str) -> float:
    """Return Shannon's entropy of the characters, in bits for each."""
    return -sum(n / len(text) * log2(n / len(text)) for n in Counter(text).values())


def is_random(text: str) -> bool:
    """Whether a text could be a key: as many different characters as chance gives, and no example."""
    if not text or entropy(text) < min(3.0, 0.7 * log2(len(text))):
        return False
    return not (_EXAMPLE.search(text) or _has_run(text) or digest(text) in _PUBLISHED)


def digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _has_run(text: str) -> bool:
    length = 1
    for one, other in itertools.pairwise(text):
        length = length + 1 if ord(other) - ord(one) == 1 else 1
        if length >= _RUN:
            return True
    return False


def has_checksum(token: str) -> bool:
    """Whether the last six characters of a GitHub or npm token are the CRC-32 of those before, in base 62."""
    body, expected = token.rpartition("_")[2][:-6], token[-6:]
    rest, written = crc32(body.encode()), ""
    for _ in expected:
        rest, digit = divmod(rest, 62)
        written = _BASE62[digit] + written
    return written == expected


def _decoded(text: str) -> str:
    """Return what a base64 text holds, in either alphabet and with or without padding; nothing if it is none."""
    try:
        padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
        return (urlsafe_b64decode if set(text) & set("-_") else b64decode)(padded).decode()
    except ValueError:
        return ""


def _is_jwt(text: str) -> bool:
    header, payload, *_ = text.split(".")
    return '"' in _decoded(header) and "John Doe" not in _decoded(payload) and is_random(text)


def _is_login(text: str) -> bool:
    """Whether it is base64 of `user:password`."""
    user, colon, password = _decoded(text).partition(":")
    return bool(user and colon and password) and user.isprintable() and is_password(password)


# Stand-ins for a value: ${VAR}, $VAR, %VAR%, {{ var }}, <value>, %s; paths; names of functions and variables.
_STAND_IN: Final = re.compile(
    r"\$[\w({]|%\w*[%s(]|\{|<|\[|process\.env|os\.environ|env[.:(]|secrets?\.|vault:|ENC\["
    r"|^[/~.]|(?i:p[a@]ssw(?:[o0]r)?d)"
)
_ORDINARY: Final = re.compile(
    r"(?i)(?:my|the|a|new|old|some|db|is|super|very|default|test|no|bad|wrong|good|right)?[_.\- ]?"
    r"(?:pass(?:w(?:or)?d|phrase|code)?|pwd|pw|secret|token|api[_-]?key|key|admin|root|user(?:name)?|guest|test(?:ing)?|"
    r"demo|foo(?:bar)?|bar|baz|qwerty|letmein|welcome|postgres(?:ql)?|mysql|maria|mongo(?:db)?|redis|rabbitmq|"
    r"docker|hello|world|abc|string|str|bytes|none|null|true|false|value|hash|sha|md5|base|utf|bearer|oauth|basic)"
    r"[\W_\d]*(?:pass(?:word)?|secret|token|key|word)?[\W_\d]*"
)
# Words and short numbers with something between them: names of things, versions, dates, paths, calls.
_NAMES: Final = re.compile(
    r"(?:[A-Za-z]+|v?\d{1,4})(?:[-_.:/@ ]+(?:[A-Za-z]+|v?\d{1,4}))*|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"
)

# Several words, some of them with a number: `oauth2_client_credentials_v2`.
_NUMBERED: Final = re.compile(r"[A-Za-z]{2,}\d{0,2}(?:[-_.:/@ ]+(?:[A-Za-z]{2,}\d{0,2}|v?\d{1,12}))+")


def is_password(text: str) -> bool:
    """Whether a text is a password that somebody chose: no word, and of more than one kind of characters."""
    if not 6 <= len(text) <= 256 or text.split() != [text] or entropy(text) * len(text) < 15:
        return False
    kinds = [re.search(kind, text) is not None for kind in ("[a-z]", "[A-Z]", "[0-9]", r"[^\w./:@-]")]
    if sum(kinds) < 2 or not any(kinds[2:]):
        return False
    return not (
        _STAND_IN.search(text)
        or _ORDINARY.fullmatch(text)
        or _NAMES.fullmatch(text)
        or _EXAMPLE.search(text)
        or _has_run(text)
        or digest(text) in _PUBLISHED
    )


def is_key(text: str) -> bool:
    """Whether a text is a key that a machine made: long, random, with digits among its letters."""
    digits = sum(map(str.isdigit, text))
    return (
        16 <= len(text) <= 4096
        and 2 <= digits < len(text)
        and text.isascii()
        and re.fullmatch(r"[\w+/=.~:!@#$%^&*-]+", text) is not None
        and not (
            _STAND_IN.search(text) or _NAMES.fullmatch(text) or _NUMBERED.fullmatch(text) or "://" in text
        )
        and is_random(text)
    )


# -- telling names ------------------------------------------------------------------------------------------

_WORDS: Final = (
    r"pass(?:word|wd|phrase|code)|[_-]pass|pwd|credentials?|authorization"
    r"|secret(?:[_-]?access)?(?:[_-]?key)?(?:[_-]base)?|[_-]?auth|token"
    r"|(?:api|app|access|account|admin|auth|private|shared|signing|encryption|service|master|client)[_-]?key"
)
TELLING: Final = re.compile(rf"(?i)(?:{_WORDS})[0-9]{{0,3}}$")
_PASSWORD: Final = re.compile(r"(?i)(?:pass(?:word|wd|phrase|code)|[_-]pass|pwd)[0-9]{0,3}$")
# A token that lets somebody in has such a word before it, or none. A cursor, a lock or a word of a text has others,
# and a `clientToken` keeps a request from being carried out twice.
_TOKEN: Final = re.compile(
    r"(?i)(?:^|access|auth|api|app|bearer|refresh|id|session|bot|deploy|private|personal|oauth2?|user|admin|service"
    r"|secret|security|registry|webhook|registration|runner|install(?:ation)?)[_-]*token[0-9]{0,3}$"
)
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*_TOKEN[0-9]{0,3}")
_CURSOR: Final = re.compile(
    r"(?i)(?:next|page|pagination|prev|previous|continuation|continue|cursor|progress|sync|resume|start|end|stop|lock"
    r"|input|output|request|eos|bos|pad|unk|mask|sep|cls|special|max|min|csrf|idempotency)[_-]*token[0-9]{0,3}$"
)


def is_secret(name: str, value: str) -> bool:
    """Whether a value is a secret, given the name that it has."""
    if TELLING.search(name) is None:
        return False
    if re.search(r"(?i)token[0-9]{0,3}$", name):
        is_telling = _TOKEN.search(name) or _VARIABLE.fullmatch(name)
        return bool(is_telling) and not _CURSOR.search(name) and is_key(value)
    if _PASSWORD.search(name):
        return is_password(value) or is_key(value)
    return is_key(value) or (name.lower().endswith("auth") and _is_login(value))


# -- the rules ----------------------------------------------------------------------------------------------

_W: Final = "[A-Za-z0-9]"
_U: Final = "[A-Za-z0-9_-]"
_X: Final = "[0-9a-f]"
# JSON may escape a slash.
_S: Final = r"\\?/"
_UUID: Final = f"{_X}{{8}}-{_X}{{4}}-{_X}{{4}}-{_X}{{4}}-{_X}{{12}}"

# Tokens that begin, or go on, in a way of their own.
_TOKENS: Final[dict[str, tuple[str, ...]]] = {
    "1password-token": (f"ops_eyJ{_U}{{100,}}",),
    "adafruit-key": (f"aio_{_W}{{28}}",),
    "age-key": ("AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}",),
    "airtable-token": (rf"pat{_W}{{14}}\.{_X}{{64}}",),
    "alibaba-key": (f"LTAI{_W}{{12,26}}",),
    "anthropic-key": (f"sk-ant-{_U}{{20,}}",),
    "apify-token": (f"apify_api_{_W}{{30,}}",),
    "artifactory-token": (f"AKCp{_W}{{60,}}", f"cmVmdGtu{_W}{{50,}}"),
    "atlassian-token": ("AT(?:ATT3|CTT3|STT3|OTT3|BB)[A-Za-z0-9_=-]{24,}",),
    "aws-access-key": ("(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}", "A3T[A-Z0-9][A-Z2-7]{16}"),
    "aws-session-token": ("(?:IQoJb3JpZ2lu|F[wQ]oGZXIvYXdz)[A-Za-z0-9+/]{100,}={0,2}",),
    "aws-bedrock-key": ("ABSK[A-Za-z0-9+/]{100,}={0,2}",),
    "amazon-mws-token": (rf"amzn\.mws\.{_UUID}",),
    "brevo-key": (f"xkeysib-{_X}{{64}}-{_W}{{16}}", f"xsmtpsib-{_X}{{64}}-{_W}{{16}}"),
    "buildkite-token": (f"bkua_{_X}{{40}}",),
    "cerebras-key": (f"csk-{_W}{{40,}}",),
    "circleci-token": (f"CCI(?:PAT|PRJ)_{_W}{{20,}}_{_X}{{40}}",),
    "clickup-token": ("pk_[0-9]{6,10}_[0-9A-Z]{32}",),
    "clojars-token": (f"CLOJARS_{_X}{{60}}",),
    "cloudflare-key": (f"v1\\.0-{_X}{{24}}-{_X}{{100,}}",),
    "contentful-token": (f"CFPAT-{_U}{{43}}",),
    "crates-token": (f"cio{_W}{{32}}",),
    "cursor-key": (f"key_{_X}{{64}}",),
    "databricks-token": (f"dapi{_X}{{32}}(?:-[0-9])?",),
    "dbt-token": (f"dbt[cu]_{_U}{{30,}}",),
    "digitalocean-token": (f"do[opr]_v1_{_X}{{64}}",),
    "docker-token": (f"dckr_(?:pat|oat)_{_U}{{27,}}",),
    "doppler-token": (rf"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{{2,40}}\.)?{_W}{{40,}}",),
    "dropbox-token": (f"sl\\.(?:u\\.)?{_U}{{120,}}",),
    "duffel-token": (f"duffel_(?:live|test)_{_U}{{43}}",),
    "dynatrace-token": (r"dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}",),
    "e2b-key": (f"e2b_{_X}{{40}}",),
    "easypost-key": (f"EZ[AT]K{_W}{{54}}",),
    "elevenlabs-key": (f"sk_{_X}{{48}}",),
    "figma-token": (f"fig[dor]_{_U}{{40,}}",),
    "firecrawl-key": (f"fc-{_X}{{32}}",),
    "fireworks-key": (f"fw_{_W}{{22,}}",),
    "flutterwave-key": (f"FLWSECK(?:_TEST)?-{_W}{{12,}}(?:-X)?",),
    "fly-token": ("(?:FlyV1 )?fm[12][ar]?_[A-Za-z0-9+/=_-]{100,}",),
    "frameio-token": (f"fio-u-{_U}{{64}}",),
    "gitlab-token": (
        f"gl(?:pat|ptt|oas|cbt|soat|rt|dt|ft|imt|agent|ffct)-{_U}{{20,}}(?:\\.[0-9a-z]{{2}}\\.[0-9a-z]{{9}})?",
        f"GR1348941{_U}{{20}}",
    ),
    "google-api-key": (f"AIza{_U}{{35}}", f"AQ\\.Ab8R{_U}{{40,}}"),
    "google-oauth": (f"ya29\\.{_U}{{30,}}", f"GOCSPX-{_U}{{28}}", f"1//0{_U}{{60,}}"),
    "grafana-token": (f"gls?a?_{_W}{{32}}_{_X}{{8}}", f"glc_eyJ{_W}{{32,}}={{0,2}}"),
    "groq-key": (f"gsk_{_W}{{48,}}",),
    "helicone-key": (f"sk-helicone-{_U}{{27,}}",),
    "heroku-key": (f"HRKU-(?:AA)?{_U}{{36,}}",),
    "honeycomb-key": ("hc[a-z](?:i[kc]|mk)_[a-z0-9]{50,}",),
    "hubspot-token": (f"pat-(?:na|eu|ap)[0-9]-{_UUID}",),
    "huggingface-token": ("hf_[A-Za-z]{34}", "api_org_[A-Za-z]{34}"),
    "infisical-token": (rf"st\.[0-9a-f-]{{24,36}}\.{_X}{{32,}}\.{_X}{{32,}}",),
    "jfrog-token": (f"eyJ2ZXIiOi{_U}{{60,}}",),
    "jina-key": (f"jina_{_U}{{50,}}",),
    "langfuse-key": (f"sk-lf-{_UUID}",),
    "langsmith-key": (f"lsv2_(?:pt|sk)_{_X}{{32}}_{_X}{{10}}",),
    "launchdarkly-key": (f"(?:sdk|api|mob)-{_UUID}",),
    "linear-key": (f"lin_(?:api|oauth)_{_W}{{40,}}",),
    "mapbox-token": (rf"sk\.eyJ{_U}{{40,}}\.{_U}{{20,}}",),
    "mailgun-private-key": (f"key-{_X}{{32}}",),
    "neon-key": ("napi_[a-z0-9]{60,}",),
    "netlify-token": (f"nf[pcoub]_{_W}{{36,}}",),
    "newrelic-key": ("NRAK-[A-Z0-9]{27}", f"NRI[IQ]-{_U}{{32}}", f"NRJS-{_X}{{19}}"),
    "notion-token": (f"ntn_{_W}{{40,}}", f"secret_{_W}{{43}}"),
    "nuget-key": ("oy2[a-z0-9]{43}",),
    "nvidia-key": (f"nvapi-{_U}{{60,}}",),
    "openai-key": (f"sk-(?:proj|svcacct|admin|None)-{_U}{{20,}}", f"sk-{_W}{{32,}}"),
    "openrouter-key": (f"sk-or-v1-{_X}{{64}}",),
    "paddle-key": (f"pdl_(?:live|sdbx)_apikey_[a-z0-9]{{26}}_{_W}{{22}}_{_W}{{3}}",),
    "paypal-token": (f"access_token\\$(?:production|sandbox)\\$[0-9a-z]{{16}}\\${_X}{{32}}",),
    "perplexity-key": (f"pplx-{_W}{{40,}}",),
    "pinecone-key": (f"pcsk_{_W}{{5,8}}_{_W}{{50,}}",),
    "plaid-token": (f"access-(?:sandbox|development|production)-{_UUID}",),
    "planetscale-token": (f"pscale_(?:tkn|pw|oauth)_{_U}{{32,}}",),
    "posthog-key": (f"phx_{_W}{{40,}}",),
    "postman-key": (f"PMAK-{_X}{{24}}-{_X}{{34}}",),
    "prefect-key": (f"pn[ub]_{_W}{{36}}",),
    "pulumi-token": (f"pul-{_X}{{40}}",),
    "pypi-token": (f"pypi-AgE{_U}{{50,}}",),
    "razorpay-key": (f"rzp_(?:live|test)_{_W}{{14,}}",),
    "readme-key": (f"rdme_{_W}{{70}}",),
    "render-key": (f"rnd_{_W}{{28,}}",),
    "replicate-token": (f"r8_{_W}{{37}}",),
    "resend-key": (f"re_{_W}{{8}}_{_W}{{20,}}",),
    "rubygems-key": (f"rubygems_{_X}{{48}}",),
    "runpod-key": (f"rpa_{_W}{{40,}}",),
    "salesforce-token": (f"00D{_W}{{12}}(?:{_W}{{3}})?![A-Za-z0-9._]{{80,}}",),
    "sendgrid-key": (rf"SG\.{_U}{{20,24}}\.{_U}{{39,50}}",),
    "sentry-token": ("sntrys_eyJ[A-Za-z0-9+/=_-]{60,}", f"sntryu_{_X}{{64}}"),
    "shippo-token": (f"shippo_(?:live|test)_{_X}{{40}}",),
    "shopify-token": ("shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",),
    "slack-token": (
        rf"xox[abpors]-[0-9]{{1,}}-{_U}{{10,}}",
        f"xoxe(?:\\.xox[bp])?-[0-9]-{_U}{{20,}}",
        f"xapp-[0-9]-{_U}{{20,}}",
        "xoxd-[A-Za-z0-9%/+=_-]{60,}",
    ),
    "sonarqube-token": (f"sq[pua]_{_X}{{40}}",),
    "sourcegraph-token": (
        f"sgp_{_X}{{40}}",
        f"sgp_local_{_X}{{40}}",
        f"sgp_{_X}{{16}}_{_X}{{40}}",
        f"slk_{_X}{{64}}",
    ),
    "square-token": (f"sq0(?:atp|csp)-{_U}{{22,}}", "EAAA[A-Za-z0-9_-]{60}"),
    "stripe-key": (f"(?:sk|rk)_(?:live|test)_{_W}{{16,}}", "whsec_[A-Za-z0-9+/]{24,}={0,2}"),
    "supabase-key": (f"sbp_{_X}{{40}}", f"sb_secret_{_U}{{30,}}"),
    "tailscale-key": (f"tskey-(?:auth|api|client|scim|webhook)-{_W}{{8,}}-{_W}{{20,}}",),
    "tavily-key": (f"tvly-(?:dev-|prod-)?{_W}{{28,}}",),
    "trello-token": (f"ATTA{_X}{{64}}",),
    "twilio-key": (f"SK{_X}{{32}}",),
    "typeform-token": (r"tfp_[A-Za-z0-9_.=-]{40,}",),
    "vault-token": (f"hv[bsr]\\.{_U}{{24,}}",),
    "vercel-token": (f"vc[pkira]_{_W}{{24,}}",),
    "voyage-key": (f"pa-{_U}{{43}}",),
    "wandb-key": (f"wandb_v1_{_U}{{40,}}",),
    "xai-key": (f"xai-{_W}{{70,}}",),
    "yandex-key": (f"AQVN{_U}{{35,38}}", rf"t1\.[A-Z0-9a-z_-]{{10,}}={{0,2}}\.{_U}{{86}}={{0,2}}"),
    "zuplo-key": (f"zpka_{_X}{{32}}_{_X}{{8}}",),
}
# Tokens whose beginning could be anything, or that have a check of their own: pattern, trigger if it isn't the
# beginning, check.
_CHECKED: Final[dict[str, tuple[str, str, Check]]] = {
    "asana-token": (f"[0-2]/[0-9]{{10,}}(?:/[0-9]{{10,}})?:{_X}{{32}}", f"[0-9]{{10}}:{_X}{{16}}", is_random),
    "azure-ad-secret": (f"{_U}{{3}}[78]Q~[A-Za-z0-9_.~-]{{31,34}}", "[78]Q~", is_random),
    "azure-devops-token": (f"{_W}{{76}}AZDO{_W}{{4}}", f"{_W}{{8}}AZDO{_W}{{4}}", is_random),
    "discord-token": (
        rf"[MNO]{_W}{{22,27}}\.{_U}{{6}}\.{_U}{{27,40}}",
        rf"{_W}{{8}}\.{_U}{{6}}\.{_U}{{16}}",
        lambda token: _decoded(token.partition(".")[0]).isdigit() and is_random(token),
    ),
    # Base64 of binary data may begin alike.
    "facebook-token": (f"EAA[A-Z]{_W}{{80,}}", "", lambda token: entropy(token) > 4.5 and is_random(token)),
    "github-pat": (f"github_pat_{_W}{{22}}_{_W}{{59}}", "", is_random),
    "github-token": (f"gh[oprsu]_{_W}{{36,}}", "", lambda token: has_checksum(token) or is_random(token)),
    "jwt": (rf"eyJ{_U}{{10,}}\.{_U}{{10,}}(?:\.{_U}*){{1,3}}", rf"eyJ{_U}{{10}}", _is_jwt),
    "mailchimp-key": (f"{_X}{{32}}-us[0-9]{{1,2}}", f"{_X}{{8}}-us[0-9]", is_random),
    "mailgun-key": (f"{_X}{{32}}-{_X}{{8}}-{_X}{{8}}", f"{_X}{{16}}-{_X}{{8}}-{_X}{{8}}", is_random),
    "npm-token": (f"npm_{_W}{{36}}", "", lambda token: has_checksum(token) or is_random(token)),
    "private-key": (
        "LS0tLS1CRUdJTi[A-Za-z0-9+/]{40,}={0,2}",
        "",
        lambda text: "PRIVATE KEY" in _decoded(text[: len(text.rstrip("=")) // 4 * 4]),
    ),
    "telegram-token": (f"[0-9]{{8,10}}:AA{_U}{{33}}", f":AA{_U}{{16}}", is_random),
    "terraform-token": (rf"{_W}{{14}}\.atlasv1\.{_U}{{60,}}", r"\.atlasv1\.", is_random),
}

# What stands between a name and its value, also in JSON that is part of a text.
_IS: Final = r"\\?[\"']?\]?[ \t]{0,8}(?::=|=>|[:=])\s{0,8}"
_BLANK: Final = r"(?:\s|\\[nrt])"
_KEY: Final = "[A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"

# Recognized by what is around them: name, pattern, trigger, check.
_AROUND: Final[tuple[tuple[str, str, str, Check], ...]] = (
    (
        "private-key",
        # The second way is for a key that was cut off: as far as it looks like one.
        rf"-----BEGIN {_KEY}(?:(?:[^-]|-{{1,4}}[^-])*-----END {_KEY}|(?:{_BLANK}*[A-Za-z0-9+/=]{{16,}})+)",
        "-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY",
        lambda text: is_random("".join(re.findall(r"[A-Za-z0-9+/=]{16,}", text))[:400]),
    ),
    (
        "slack-webhook",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9_/+-]{20,})",
        r"hooks\.slack\.com",
        is_random,
    ),
    (
        "discord-webhook",
        rf"discord(?:app)?\.com/api/webhooks/[0-9]{{15,}}/(?P<secret>{_U}{{40,}})",
        rf"discord(?:app)?\.com{_S}api{_S}webhooks",
        is_random,
    ),
    (
        "teams-webhook",
        rf"webhook\.office\.com/webhookb2/[^\s/]{{36,}}/IncomingWebhook/(?P<secret>{_X}{{32}}/[^\s\"']{{36,}})",
        r"webhook\.office\.com",
        is_random,
    ),
    (
        "azure-key",
        r"(?:(?:Account|Access)Key=|[?&]sig=)(?P<secret>[A-Za-z0-9+/%]{40,}={0,2})",
        "(?:Account|Access)Key=|[?&]sig=",
        is_random,
    ),
    (
        "aws-secret-key",
        rf"(?i:secret[_-]?(?:access[_-]?)?key){_IS}\\?[\"']?(?P<secret>[A-Za-z0-9/+]{{40}})(?:[^A-Za-z0-9/+=]|$)",
        r"(?i:secret[_-]?(?:access[_-]?)?key)(?:[\"'\\\]]|[ ]{0,8}[:=])",
        is_key,
    ),
    (
        "authorization",
        rf"(?i:authorization){_IS}\\?[\"']?(?i:bearer|token|apikey|bot|key|ssws) "
        r"(?P<secret>[A-Za-z0-9._~+/=-]{16,})",
        r"(?i:authorization)[\"'\\\]:= ]",
        is_key,
    ),
    (
        "authorization",
        r"(?:Bearer|bearer|BEARER) (?P<secret>[A-Za-z0-9._~+/-]{20,}={0,2})",
        r"(?:[Bb]earer|BEARER) [A-Za-z0-9._~+/\\-]{16}",
        is_key,
    ),
    ("authorization", "Basic (?P<secret>[A-Za-z0-9+/]{8,}={0,2})", r"Basic [A-Za-z0-9+/\\]{8}", _is_login),
    (
        "url-password",
        r"[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/?#:@\"'<>]{0,256}:(?P<secret>[^\s/\"'<>@,\\]+)@[A-Za-z0-9\[_$]",
        r'/[^\s/?#:@"]*:[^\s/"@]+@',
        is_password,
    ),
)
# The same in the level `keys`, all of them passwords.
_PASSWORDS: Final = (
    (
        r"(?:machine\s+\S+|default)\s+login\s+\S+\s+password\s+(?P<secret>\S+)",
        rf"login{_BLANK}(?s:.*)password{_BLANK}",
    ),
    (
        r"curl\s[^\n|;]*?(?:-u|--user|--proxy-user)[ =]?[\"']?[^\s:\"'/]+:(?P<secret>[^\s\"']+)",
        rf"curl{_BLANK}.*(?:-u|-user)",
    ),
    (r"(?:requirepass|masterauth)\s+[\"']?(?P<secret>[^\s\"']+)", rf"(?:requirepass|masterauth){_BLANK}"),
    (r"mysql(?:dump|admin)?\s[^\n|;]*?-p(?P<secret>[^\s\"']+)", rf"mysql(?:dump|admin)?{_BLANK}.*-p"),
    # In XML: as an element, or as the value of what has the name.
    (
        r"(?i)<[\w:.-]*(?:password|passwd|passphrase)>(?P<secret>[^<>\s]+)<",
        "(?i:password|passwd|passphrase)>",
    ),
    (
        r"(?i)(?:key|name)=\"[\w:.-]*(?:password|passwd|pwd)\"\s+value=\"(?P<secret>[^\"\s]+)\"",
        rf"(?i:password|passwd|pwd)\\?\"{_BLANK}+value=",
    ),
    (r"sshpass\s+-p\s*[\"']?(?P<secret>[^\s\"']+)", "sshpass"),
    (r"(?m)^[^:\s]+:(?:5432|3306|\*):[^:\s]+:[^:\s]+:(?P<secret>\S+)$", r":(?:5432|3306|\*):[^:]+:[^:]+:"),
    (r"IDENTIFIED (?:WITH \S+ )?BY\s+['\"](?P<secret>[^'\"\s]+)['\"]", "IDENTIFIED "),
)
# NAME = "value", NAME: value, --NAME value
_NAME: Final = rf"[A-Za-z0-9_-]{{0,48}}(?i:{_WORDS})[0-9]{{0,3}}"
_ASSIGNED: Final = (
    rf"(?:(?P<name>{_NAME}){_IS}|--(?P<name2>{_NAME})[ \t])"
    r'(?:\\"(?P<secret>[^"\\]{6,})\\"|"(?P<secret2>(?:[^"\\\r\n]|\\.){6,})"'
    r"|'(?P<secret3>(?:[^'\\\r\n]|\\.){6,})'|(?P<secret4>[^\s\"'`,;&|<>()\[\]{}\\]{6,}))"
)
_TELLING_TRIGGER: Final = rf"(?i:(?:{_WORDS})[0-9]{{0,3}}(?:[\"'\\\]]|[ ]{{0,8}}[:= ]))"


def _beginning(pattern: str) -> str:
    """Return a trigger for a token: up to its first long repetition, of which only some characters count."""
    for repeated in re.finditer(r"\{(\d+),?\d*\}", pattern):
        if int(repeated[1]) >= 8:
            return (pattern[: repeated.start()] + f"{{{min(int(repeated[1]), 16)}}}").replace("/", _S)
    raise AssertionError(pattern)


def rules(level: Level) -> list[Rule]:
    """Return the rules of a level. Where two find the same, the first one names it."""
    tokens: list[tuple[str, str, str, Check]]
    tokens = [(name, each, "", is_random) for name, patterns in _TOKENS.items() for each in patterns]
    tokens += [(name, *each) for name, each in _CHECKED.items()]
    found = [Rule(name, each, trigger or _beginning(each), check) for name, each, trigger, check in tokens]
    found += [Rule(*each, edged=False) for each in _AROUND]
    if level == "keys":
        found += [Rule("password", *each, is_password, edged=False) for each in _PASSWORDS]
        found.append(Rule("credential", _ASSIGNED, _TELLING_TRIGGER, bool, edged=False))
    return found
