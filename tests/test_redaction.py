"""Secrets go, everything else stays byte for byte."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import uuid
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_envelope.redaction import BadPattern, Redactor
from mcp_envelope.secrets import BUILT_IN, SENSITIVE_KEYS

from .conftest import examples
from .strategies import small_values, words

REDACTOR = Redactor()
ALNUM = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def run(length: int, alphabet: str = ALNUM, seed: int = 0) -> str:
    return "".join(random.Random(length * 31 + seed).choices(alphabet, k=length))


def pem(kind: str = "RSA ", line_end: str = "\n", lines: int = 12) -> str:
    body = [f"-----BEGIN {kind}PRIVATE KEY-----", *[run(64, seed=n) for n in range(lines)]]
    return line_end.join([*body, f"-----END {kind}PRIVATE KEY-----"])


# Put together at run time, so that no scanner of sources takes this file for a leak.
SECRETS: list[tuple[str, str]] = [
    ("private_key", pem()),
    ("private_key", pem("", "\\n")),
    ("private_key", pem("OPENSSH ", "\r\n")),
    (
        "private_key",
        pem().replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n", 1),
    ),
    ("private_key", pem("EC ").split("-----END")[0]),
    ("aws_access_key", "AKIA" + run(16, "ABCDEFGHIJ234567")),
    ("aws_access_key", "ASIA" + run(16, "ABCDEFGHIJ234567")),
    ("github_token", "ghp_" + run(36)),
    ("github_token", "gho_" + run(36)),
    ("github_token", "ghs_" + run(36)),
    ("github_token", "github_pat_" + run(22) + "_" + run(59)),
    ("gitlab_token", "glpat-" + run(20)),
    ("slack_token", "xoxb-" + run(12, "0123456789") + "-" + run(24)),
    ("stripe_key", "sk_" + "live_" + run(24)),
    ("google_api_key", "AIza" + run(35)),
    ("google_oauth", "ya29." + run(60)),
    ("openai_key", "sk-" + run(48)),
    ("openai_key", "sk-proj-" + run(60)),
    ("anthropic_key", "sk-ant-" + "api03-" + run(90)),
    ("npm_token", "npm_" + run(36)),
    ("pypi_token", "pypi-AgEIcHlwaS5vcmc" + run(100)),
    ("jwt", "eyJ" + run(33) + ".eyJ" + run(80) + "." + run(43)),
    ("sendgrid_key", "SG." + run(22) + "." + run(43)),
    ("twilio_key", "SK" + run(32, "0123456789abcdef")),
    ("telegram_token", "123456789:AA" + run(33)),
    ("huggingface_token", "hf_" + run(34, ALNUM[:52])),
    ("digitalocean_token", "dop_v1_" + run(64, "0123456789abcdef")),
    ("databricks_token", "dapi" + run(32, "0123456789abcdef")),
    ("docker_token", "dckr_pat_" + run(27)),
    ("shopify_token", "shpat_" + run(32, "0123456789abcdef")),
    ("vault_token", "hvs." + run(30)),
    ("atlassian_token", "ATATT3" + run(80)),
]
# What goes is marked by «».
IN_CONTEXT: list[tuple[str, str]] = [
    ("url_password", "postgres://ada:«hunter2»@db.example.com:5432/app"),
    ("url_password", "redis://:«s3cr3t»@localhost:6379/0"),
    ("url_password", "mongodb+srv://ada:«p@ss:w%20rd»@cluster0.example.net/test?w=majority"),
    ("url_password", "clone https://oauth2:«abc»@git.example.com/x.git now"),
    ("authorization", "curl -H 'Authorization: Bearer «abcdef»' https://example.com"),
    ("authorization", "Authorization: Basic «dXNlcjpwYXNz»"),
    ("authorization", "Bearer «" + run(30) + "7»"),
    ("authorization", "Basic «" + base64.b64encode(b"user:password12").decode() + "»"),
    ("azure_key", "AccountName=x;AccountKey=«" + run(86) + "==»;EndpointSuffix=y"),
    ("aws_secret_key", "aws_secret_access_key = «" + run(20) + "/" + run(19) + "»"),
    ("slack_webhook", "https://hooks.slack.com/services/«T0000/B0000/" + run(24) + "»"),
    ("credential", "password=«hunter2»"),
    ("credential", "DB_PASSWORD=«letmein»\nDEBUG=1"),
    ("credential", "Server=x;Uid=sa;Pwd=«letmein»;"),
    ("credential", "https://example.com/cb?token=«abcdefgh»&x=1"),
    ("credential", "api_key = '«abc123»'"),
    ("credential", 'client_secret: "«abcdef»"'),
    ("credential", 'os.environ["API_KEY"] = "«abcdef»"'),
    ("credential", 'log line {"password": "«correct horse battery»", "x": 1} end'),
    ("credential", "password: «hunter22»"),
    ("credential", "//registry/:_authToken=«" + run(20) + "1»"),
]
CLEAN: list[str] = [
    "",
    "The password must have 8 characters; the secret is patience. Token: a word. Basic understanding of keys.",
    "Basic internationalization support, bearer of bad news, basic authentication",
    str(uuid.UUID(int=random.Random(1).getrandbits(128))),
    hashlib.sha1(b"x").hexdigest(),
    hashlib.sha256(b"x").hexdigest(),
    "sha512-" + base64.b64encode(hashlib.sha512(b"x").digest()).decode(),
    "data:image/png;base64," + base64.b64encode(random.Random(2).randbytes(30_000)).decode(),
    "password = get_password()",
    "password = getpass2()",
    "self.password = password",
    "this.password=password;",
    "token = os.environ['TOKEN_1']",
    "token = config.auth.token1",
    "def login(user: str, password: str, token: str | None = None) -> None:",
    "login(user, password=password, token=tok)",
    "password: ${DB_PASSWORD1}",
    "PASSWORD=$DB_PASSWORD",
    'password: "***"',
    "api_key=<your-api-key>",
    'password = ""',
    "PWD=/home/ada/project2",
    "next_page_token=abc123def",
    "price per token: 0.000015, max_token: 4096",
    "tokens=12345 token_count=99",
    "https://example.com:8080/path?x=1#user@example.com",
    "git@github.com:org/repo.git ssh://git@example.com:22/x",
    "http://localhost:3000/@scope/package",
    "task-management-system-for-large-teams and sk-SK locale, risk-averse-and-long-kebab-case-name",
    "npm_config_registry ghp_short AKIA sk_live_ eyJhbGciOiJIUzI1NiJ9",
    "-----BEGIN CERTIFICATE-----\n" + run(64) + "\n-----END CERTIFICATE-----",
    'if "-----BEGIN PRIVATE KEY-----" in text: raise',
    "between '-----BEGIN RSA PRIVATE KEY-----' and '-----END RSA PRIVATE KEY-----' are lines of base64",
    '"input_token": "next_token", REFRESH = token, f"token={token1}&password={x}"',
    "client_request_token=client_request_token",
    "2026-01-02T03:04:05.678Z 10.0.0.1:8080 +1 555 0100",
]


@pytest.mark.parametrize(("name", "secret"), SECRETS)
def test_a_secret_goes_wherever_it_stands(name: str, secret: str) -> None:
    for before, after in [
        ("", ""),
        ("use ", " now"),
        ("line\n", "\nline"),
        ("x='", "'"),
        ("(", ")"),
        ("\\n", ""),
    ]:
        text, found = REDACTOR.redact_text(before + secret + after)
        assert text.replace("\n", "") == f"{before}[redacted:{name}]{after}".replace("\n", "")
        assert found == Counter({name: 1})


@pytest.mark.parametrize(("name", "marked"), IN_CONTEXT)
def test_in_context_only_the_secret_goes(name: str, marked: str) -> None:
    start, end = marked.index("«"), marked.index("»")
    text, found = REDACTOR.redact_text(marked.replace("«", "").replace("»", ""))
    assert text == f"{marked[:start]}[redacted:{name}]{marked[end + 1 :]}"
    assert found == Counter({name: 1})


@pytest.mark.parametrize("text", CLEAN)
def test_what_is_no_secret_stays(text: str) -> None:
    assert REDACTOR.redact_text(text) == (text, Counter())
    raw = json.dumps({"text": text, text: 1, "list": [text]}).encode()
    assert REDACTOR.redact_json(raw)[0] is raw


@pytest.mark.parametrize(
    "key",
    [
        *(
            "password",
            "DB_PASSWORD",
            "userPassword",
            "passwd",
            "password2",
            "secret",
            "clientSecret",
            "token",
        ),
        *("access_token", "api_key", "apiKey", "X-Api-Key", "SecretAccessKey", "privateKey", "Authorization"),
    ],
)
def test_a_telling_key_gives_its_value_away(key: str) -> None:
    raw = json.dumps({"a": 1, key: "any thing", "b": [key, "any thing"]}, indent=1).encode()
    clean, found = REDACTOR.redact_json(raw)
    assert clean == raw.replace(b'"any thing"', b'"[redacted:credential]"', 1)
    assert found == Counter(credential=1)
    assert Redactor(keys=None).redact_json(raw)[0] is raw


@pytest.mark.parametrize(
    "raw",
    [
        b'{"password":""}',
        b'{"password":null,"token":12345,"secret":{"name":"x"},"api_key":["x"]}',
        b'{"password":"${DB}","secret":"********","token":"[redacted:jwt]"}',
        b'{"nextPageToken":"abc","progressToken":"t-1","continuation_token":"x","eos_token":"</s>"}',
        b'{"token_type":"bearer","passwordPolicy":"strong","secretName":"x","max_tokens":"5"}',
        b'{"name":"password","type":"token"}',
        b'{"pwd":"/home/ada","OLDPWD":"C:\\\\Users"}',
        b'{"password":"string","authorization":"required"}',
    ],
)
def test_keys_that_tell_nothing(raw: bytes) -> None:
    assert REDACTOR.redact_json(raw)[0] is raw


def test_everything_else_keeps_its_bytes() -> None:
    secret = dict(SECRETS)["github_token"].encode()
    raw = (
        b' {"n":[1.0,1e400,-0,123456789012345678901234567890], "s":"\\u00e9\\/\\ud83d", "d":1,"d":2,\n'
        b'\t"' + secret + b'":"key stays", "x":"a \\"quoted\\\\\\" ' + secret + b'" ,"e":"\\\\"} '
    )
    clean, found = REDACTOR.redact_json(raw)
    head, tail = raw.rsplit(secret, 1)
    assert clean == head + b"[redacted:github_token]" + tail
    assert found == Counter(github_token=1)


@pytest.mark.parametrize(
    "hidden",
    [
        rb'{"a":"\u0067hp_%s"}' % run(36).encode(),
        rb'{"a":"gh\u0070\u005f%s"}' % run(36).encode(),
        rb'{"p\u0061ssword":"x y"}',
        rb'{"a":"postgres:\/\/u:pw1@h\/db"}',
        rb'{"a":"postgres:/\/u:pw1@h\/db"}',
        rb'{"a":"postgres\u003a\u002f\u002fu\u003apw1\u0040h"}',
        rb'{"a":"x\npassword\u003dhunter2"}',
        rb'{"a":"\ud83d password=hunter2"}',
        rb'["{\"password\":\"x y\"}"]',
        rb'["{\"a\":\"{\\\"password\\\":\\\"x y\\\"}\"}"]',
    ],
)
def test_spelling_is_no_hiding_place(hidden: bytes) -> None:
    clean, found = REDACTOR.redact_json(hidden)
    assert found.total() == 1
    assert b"[redacted:" in clean
    json.loads(clean)
    assert not any(part in json.dumps(json.loads(clean)) for part in (run(36), "hunter2", "pw1", "x y"))


def test_json_in_a_string_stays_json() -> None:
    inner = json.dumps({"password": 'a "b" \\', "n": 1.0, "t": "ghp_" + run(36)}, indent=2)
    raw = json.dumps([{"type": "text", "text": inner}]).encode()
    clean, found = REDACTOR.redact_json(raw)
    assert json.loads(json.loads(clean)[0]["text"]) == {
        "password": "[redacted:credential]",
        "n": 1.0,
        "t": "[redacted:github_token]",
    }
    assert found == Counter(credential=1, github_token=1)


def test_deep_and_long_documents() -> None:
    secret = "glpat-" + run(20)
    deep = b"[" * 100_000 + b'"' + secret.encode() + b'"' + b"]" * 100_000
    assert REDACTOR.redact_json(deep)[0] == deep.replace(secret.encode(), b"[redacted:gitlab_token]")
    for pad in [*range(65_500, 65_560), 2040, 66_550, 131_060, 300_000]:
        text = "x" * pad + " " + secret + " " + "y" * 70_000 + " password=hunter2 " + "z" * 10
        clean, found = REDACTOR.redact_json(json.dumps([1, text, {"password": "p", "q": text[:9]}]).encode())
        assert found == Counter(gitlab_token=1, credential=2)
        assert len(json.loads(clean)[1]) == len(text) - len(secret) + 23 - 7 + 21


@st.composite
def planted(draw: st.DrawFn) -> tuple[Any, Counter[str], list[str]]:
    """Any JSON, with known secrets in some of its strings."""
    found: Counter[str] = Counter()
    secrets: list[str] = []

    def plant(value: Any) -> Any:
        if isinstance(value, str):
            if not draw(st.booleans()):
                return value
            name, secret = draw(st.sampled_from(SECRETS))
            found[name] += 1
            secrets.append(secret)
            return f"{value} {secret} {value}"
        if isinstance(value, list):
            return [plant(item) for item in value]
        if isinstance(value, dict):
            return {key: plant(item) for key, item in value.items()}
        return value

    return plant(draw(st.lists(small_values, max_size=5))), found, secrets


def shape(value: Any) -> Any:
    if isinstance(value, list):
        return [shape(item) for item in value]
    if isinstance(value, dict):
        return [(key, shape(item)) for key, item in value.items()]
    return str if isinstance(value, str) else repr(value)


@settings(max_examples=examples(200))
@given(planted(), st.booleans(), st.sampled_from([None, 1]))
def test_every_planted_secret_is_gone_and_counted(
    plan: tuple[Any, Counter[str], list[str]], ascii_only: bool, indent: int | None
) -> None:
    value, expected, secrets = plan
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    clean, found = REDACTOR.redact_json(raw)
    assert found == expected
    result = json.loads(clean)
    assert shape(result) == shape(value)
    text = json.dumps(result, ensure_ascii=False)
    assert not any(json.dumps(secret)[1:-1] in text for secret in secrets)
    assert (clean is raw) == (not expected)
    again, none = REDACTOR.redact_json(clean)
    assert again is clean
    assert not none


noise = st.lists(
    st.one_of(
        words,
        st.sampled_from([secret for _, secret in SECRETS]),
        st.sampled_from([text.replace("«", "").replace("»", "") for _, text in IN_CONTEXT]),
        st.sampled_from(CLEAN[:5] + CLEAN[9:]),
        st.sampled_from(
            ["password", "token", "=", ":", '"', "'", "[redacted:", "]", "[redacted:jwt]", " ", "\n"]
        ),
    ),
    max_size=8,
).map("".join)


@settings(max_examples=examples(300))
@given(noise)
@example('secret"="' * 3)
def test_twice_is_once(text: str) -> None:
    clean, _ = REDACTOR.redact_text(text)
    assert REDACTOR.redact_text(clean) == (clean, Counter())


@settings(max_examples=examples(200))
@given(noise, st.dictionaries(st.sampled_from(["password", "a", "token", "n"]), noise, max_size=3))
def test_raw_and_decoded_agree(text: str, members: dict[str, str]) -> None:
    """The triggers on raw JSON miss nothing that the patterns find in the decoded value."""
    value = [text, members, {"text": json.dumps(members)}]
    slow = Redactor({**BUILT_IN, "never": r"[^\s\S]\d"})  # no literal: it looks at every value
    for ascii_only in (True, False):
        raw = json.dumps(value, ensure_ascii=ascii_only).encode()
        assert REDACTOR.redact_json(raw) == slow.redact_json(raw)


@settings(max_examples=examples(150))
@given(
    st.sampled_from(
        [r"\w+", r".+", r"\S+ \S+", r".\[", r"[a-z]{2}", r"(?i)RED", r"a.*d", r"x(?P<secret>\d+)", r"\]"]
    ),
    noise,
)
def test_twice_is_once_for_any_pattern(pattern: str, text: str) -> None:
    redactor = Redactor({**BUILT_IN, "mine": pattern})
    clean, _ = redactor.redact_text(text)
    assert redactor.redact_text(clean) == (clean, Counter())


@pytest.mark.parametrize(
    ("pattern", "value", "clean"),
    [
        (r"TICKET-\d{6}", "see TICKET-123456.", "see [redacted:mine]."),
        (r"(?i)ticket-\d+", "see TicKet-1.", "see [redacted:mine]."),
        (r"(?i)kiss-\d+", "\u212a\u0131\u017f\u017f-5", "[redacted:mine]"),
        (r"id=(?P<secret>\d+)", "id=55 id=66", "id=[redacted:mine] id=[redacted:mine]"),
        (r"\d{3}-\d{2}-\d{4}", "ssn 123-45-6789", "ssn [redacted:mine]"),
        (r"(?:foo|bar)\d", "xfoo1 bar2", "x[redacted:mine] [redacted:mine]"),
        (r"é+", "caféé", "caf[redacted:mine]"),
        ("a/b", "a/b", "[redacted:mine]"),
        (r"(?<=\s)ab$", "x ab", "x [redacted:mine]"),
    ],
)
def test_patterns_of_the_user(pattern: str, value: str, clean: str) -> None:
    redactor = Redactor({"mine": pattern}, keys=None)
    assert redactor.redact_text(value)[0] == clean
    for ascii_only in (True, False):
        raw = json.dumps({"k": [value]}, ensure_ascii=ascii_only).encode()
        assert json.loads(redactor.redact_json(raw)[0]) == {"k": [clean]}
    escaped = "".join(f"\\u{ord(c):04x}" for c in value)
    assert json.loads(redactor.redact_json(b'"%s"' % escaped.encode())[0]) == clean


@pytest.mark.parametrize(
    ("name", "pattern", "reason"),
    [
        ("mine", "a(b", r"redaction pattern 'mine': missing \), unterminated subpattern at position 1"),
        ("mine", "*a", "nothing to repeat at position 0"),
        ("mine", "a*", "matches the empty string"),
        ("mine", "(a+)+b", "unbounded repetition inside another"),
        ("mine", r"(?:\w*\s?)*x", "unbounded repetition inside another"),
        ("mine", "((?:ab|c+)d){2,}e", "unbounded repetition inside another"),
        ("my name", "a", "a name consists of"),
    ],
)
def test_patterns_that_cannot_be_used_say_why(name: str, pattern: str, reason: str) -> None:
    with pytest.raises(BadPattern, match=reason):
        Redactor({name: pattern})


@pytest.mark.parametrize("pattern", ["(a++b)+", "(?>a+)+", "(a{1,9})+", "a+b+", "(?:a+b){1,5}"])
def test_repetitions_that_end_are_taken(pattern: str) -> None:
    Redactor({"mine": pattern})


def test_keys_of_the_user() -> None:
    redactor = Redactor({}, keys=SENSITIVE_KEYS.replace("authorization", "authorization|iban"))
    assert (
        json.loads(redactor.redact_json(b'{"iban":"DE0012","a":"b"}')[0])["iban"] == "[redacted:credential]"
    )
    redactor = Redactor({}, keys="^iban$")
    assert redactor.redact_json(b'{"iban":"DE0012","password":"b"}')[1] == Counter(credential=1)


@pytest.mark.parametrize(
    "unit",
    [
        *("password=a", "token=a.b", "password:", '"password":"', ".eyJaaaaaaaaaaaaa", "a://b:", "secret = "),
        *(
            "-----BEGIN PRIVATE KEY-----\n" + "a" * 39,
            "-----BEGIN PRIVATE KEY-----a-b-c-",
            "[redacted:",
            "1:AA",
        ),
    ],
)
def test_built_in_patterns_do_not_blow_up(unit: str) -> None:
    """No time is asserted: a pattern that is not linear here would not come back."""
    text = unit * (400_000 // len(unit))
    clean, _ = REDACTOR.redact_text(text)
    assert REDACTOR.redact_text(clean)[0] == clean
