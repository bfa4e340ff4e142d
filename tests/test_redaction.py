"""What is masked, what is not, that nothing else changes, and that masking is undone exactly."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import uuid
from collections import Counter
from typing import Any

import pytest
from benchmarks.secret_formats import FORMATS, Format
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_envelope.outcome import Failure
from mcp_envelope.redaction import BadPattern, Masking, Redactor, restored
from mcp_envelope.secrets import entropy, has_checksum, is_random, is_secret

from .conftest import examples
from .strategies import small_values, words

LEVELS = {level: Redactor(level) for level in ("tokens", "keys")}
KEYS = LEVELS["keys"]
GITHUB = next(each for each in FORMATS if each.title == "GitHub personal").example()[0]
GITLAB = next(each for each in FORMATS if each.title == "GitLab personal").example()[0]


def masked(text: str, using: Redactor = KEYS) -> tuple[str, Counter[str]]:
    masking = Masking()
    return using.redact_text(text, masking), masking.found


class Memory:
    """Remembers masked values, as a vault does."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def mark(self, name: str, value: str) -> str:
        known = {value: key for key, value in self.values.items()}
        key = known.get(value) or "".join("abcdefghij"[int(digit)] for digit in f"{len(self.values):06}")
        self.values[key] = value
        return f"[redacted:{name}:{key}]"


# What developers' files are full of.
ORDINARY = [
    "",
    "The password must have 8 characters; the secret is patience. Token: a word. Basic understanding of keys.",
    "Basic internationalization support, bearer of bad news, basic authentication",
    str(uuid.UUID(int=random.Random(1).getrandbits(128))),
    hashlib.sha1(b"x").hexdigest(),
    "sha256:" + hashlib.sha256(b"x").hexdigest(),
    '"integrity": "sha512-' + base64.b64encode(hashlib.sha512(b"x").digest()).decode() + '"',
    "data:image/png;base64," + base64.b64encode(random.Random(2).randbytes(30_000)).decode(),
    "password = get_password2()",
    "self.password = password",
    "token = os.environ['TOKEN_1']",
    "token = config.auth.token1",
    "def login(user: str, password: str, token: str | None = None) -> None:",
    "password: ${DB_PASSWORD1}",
    "PASSWORD=$DB_PASSWORD2",
    'password: "***"',
    "api_key=<your-api-key-1>",
    "POSTGRES_PASSWORD: postgres",
    "MYSQL_ROOT_PASSWORD=password123",
    "DATABASE_URL=postgres://postgres:postgres@localhost:5432/app",
    "DATABASE_URL=postgres://user:password1@localhost:5432/app",
    '{"password": "Passwort", "newPassword": "Neues Passwort (mindestens 8 Zeichen)", "token": "Jeton"}',
    '{"paginationToken": "CAUQAA8f7f7d8d8e9e0a1b2c3", "lock_token": "9f8e7d6c5b4a39281706aa"}',
    '{"nextPageToken": "9f8e7d6c5b4a39281706", "nextToken": "AAMA-EFRSURBSGg0bE1iSnBOZ0s4", "eos_token": "</s1>"}',
    '{"token": "keyword", "tokenType": "bearer", "token_count": "12345678901234567890"}',
    '{"clientToken": "0b6c7f0e-7d2a-4f6b-9a43-5d1e8c2f7a90", "client_token": "9f8e7d6c5b4a39281706aa"}',
    '{"auth": "oauth2_client_credentials_v2", "service_key": "billing-service-v2-prod01"}',
    '{"secret": "projects/12345/secrets/db-pass/versions/12"} password = \'P@ssw0rd1\'',
    '<password minLength="8">Enter password 1</password> <password>changeme</password> <token type="keyword1"/>',
    "by_pass: false1, first_pass=true, num_pass: 100000, pass: number1",
    'enum TokenKind { Password = "password", Secret = "secret_1", ApiKey = "api-key-v2" }',
    'assert login("ada", password="wrong-password-1") == 401',
    "PWD=/home/ada/project2",
    "tokens=12345 token_count=99 max_tokens: 4096",
    "https://example.com:8080/path?x=1#user@example.com git@github.com:org/repo.git ssh://git@example.com:22/x",
    "http://localhost:3000/@scope/package",
    "task-management-system-for-large-teams and sk-SK locale, risk-averse-and-long-kebab-case-name",
    "npm_config_registry ghp_short AKIA sk_live_ eyJhbGciOiJIUzI1NiJ9",
    "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx sk-ant-your-key-goes-in-this-place glpat-XXXXXXXXXXXXXXXXXXXX",
    # Examples from the documentation of GitHub, AWS and jwt.io.
    "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "AKIA" + "IOSFODNN7EXAMPLE aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0.dozjgNryP4J3jVmNHl0w5N",
    "sk_test_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "-----BEGIN CERTIFICATE-----\nMIIBPAIBAAJBANPQbQ92nlbeg1Q5JNHSO1Yey46nZ7GJltLWw1cc\n-----END CERTIFICATE-----",
    'if "-----BEGIN PRIVATE KEY-----" in text: raise',
    "between '-----BEGIN RSA PRIVATE KEY-----' and '-----END RSA PRIVATE KEY-----' are lines of base64",
    "2026-01-02T03:04:05.678Z 10.0.0.1:8080 +1 555 0100",
    "private_key: x25519.X25519PrivateKey",
]


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.title)
def test_a_format_is_found_wherever_it_stands(kind: Format) -> None:
    using = LEVELS[kind.level]
    for seed in range(3):
        text, secret = kind.example(seed)
        expected = text.replace(secret, f"[redacted:{kind.rule}]")
        assert masked(text, using) == (expected, Counter({kind.rule: 1}))
        for raw in (json.dumps({"a": [text]}), json.dumps({"a": [text]}).replace("/", "\\/")):
            masking = Masking()
            assert json.loads(using.redact_json(raw.encode(), masking)) == {"a": [expected]}
        if text == secret:
            for before, after in [
                ("use ", " now"),
                ("line\n", "\nline"),
                ("x='", "'"),
                ("(", ")"),
                ("\\n", ""),
            ]:
                assert masked(before + text + after, using)[0] == before + expected + after


def test_there_are_a_hundred_formats() -> None:
    assert len(FORMATS) >= 100
    assert sum(each.level == "tokens" for each in FORMATS) >= 100


@pytest.mark.parametrize("text", ORDINARY)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == (text, Counter())
    raw = json.dumps({"text": text, text: 1, "list": [text]}).encode()
    assert KEYS.redact_json(raw, Masking()) is raw


def test_a_token_needs_a_checksum_or_randomness() -> None:
    assert has_checksum(GITHUB)
    wrong = GITHUB[:-1] + ("a" if GITHUB[-1] != "a" else "b")
    assert not has_checksum(wrong)
    dull = "ghp_" + "a1B2" * 9
    manual = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    mask = "[redacted:github-token]"
    assert masked(f"{wrong} {GITHUB} {dull} {manual}")[0] == f"{mask} {mask} {dull} {manual}"


def test_what_random_means() -> None:
    assert entropy("aaaa") == 0
    assert entropy("abcd") == 2
    assert is_random("q8Zr2Lw9Vt4Xk7Bn1Hm5")
    for ordinary in ("a" * 40, "abcdefghijklmnop9Zr2", "q8Zr2Lw9Vt4Xk7Bn1EXAMPLE", "0123456789" * 3):
        assert not is_random(ordinary)


@pytest.mark.parametrize(
    "name",
    ["password", "DB_PASSWORD", "userPassword", "passwd", "password2", "clientSecret", "apiKey", "X-Api-Key"],
)
def test_a_telling_name_and_a_random_value(name: str) -> None:
    raw = json.dumps(
        {"a": 1, name: "q8Zr2Lw9Vt4Xk7Bn1Hm5", "b": [name, "q8Zr2Lw9Vt4Xk7Bn1Hm5"]}, indent=1
    ).encode()
    masking = Masking()
    clean = KEYS.redact_json(raw, masking)
    assert clean == raw.replace(b'"q8Zr2Lw9Vt4Xk7Bn1Hm5"', b'"[redacted:credential]"', 1)
    assert LEVELS["tokens"].redact_json(raw, Masking()) is raw


@pytest.mark.parametrize(
    ("name", "value", "is_one"),
    [
        ("password", "hunter2", True),
        ("password", "keyword", False),
        ("password", "correct horse battery 1", False),
        ("access_token", "q8Zr2Lw9Vt4Xk7Bn1Hm5", True),
        ("GITEA_TOKEN", "q8Zr2Lw9Vt4Xk7Bn1Hm5", True),
        ("fooToken", "q8Zr2Lw9Vt4Xk7Bn1Hm5", False),
        ("paginationToken", "q8Zr2Lw9Vt4Xk7Bn1Hm5", False),
        ("NEXT_PAGE_TOKEN", "q8Zr2Lw9Vt4Xk7Bn1Hm5", False),
        ("lock_token", "q8Zr2Lw9Vt4Xk7Bn1Hm5", False),
        ("token", "access", False),
        ("name", "q8Zr2Lw9Vt4Xk7Bn1Hm5", False),
        ("secret", "my-secret-name-2024", False),
    ],
)
def test_names_and_values(name: str, value: str, is_one: bool) -> None:
    assert is_secret(name, value) is is_one


def test_everything_else_keeps_its_bytes() -> None:
    secret = GITHUB.encode()
    raw = (
        b' {"n":[1.0,1e400,-0,123456789012345678901234567890], "s":"\\u00e9\\/\\ud83d", "d":1,"d":2,\n'
        b'\t"' + secret + b'":"key stays", "x":"a \\"quoted\\\\\\" ' + secret + b'" ,"e":"\\\\"} '
    )
    head, tail = raw.rsplit(secret, 1)
    assert KEYS.redact_json(raw, Masking()) == head + b"[redacted:github-token]" + tail


@pytest.mark.parametrize(
    "hidden",
    [
        rb'{"a":"\u0067%s"}' % GITHUB[1:].encode(),
        rb'{"a":"gh\u0070\u005f%s"}' % GITHUB[4:].encode(),
        rb'{"p\u0061ssword":"hunter2"}',
        rb'{"a":"postgres:\/\/u:hunter2@h\/db"}',
        rb'{"a":"postgres\u003a\u002f\u002fu\u003ahunter2\u0040h"}',
        rb'{"a":"x\npassword\u003dhunter2"}',
        rb'{"a":"\ud83d password=hunter2"}',
        rb'["{\"password\":\"hunter2\"}"]',
        rb'["{\"a\":\"{\\\"password\\\":\\\"hunter2\\\"}\"}"]',
    ],
)
def test_spelling_is_no_hiding_place(hidden: bytes) -> None:
    masking = Masking()
    clean = json.dumps(json.loads(KEYS.redact_json(hidden, masking)))
    assert masking.found.total() == 1
    assert not any(part in clean for part in (GITHUB[4:], "hunter2"))


def test_deep_and_long_documents() -> None:
    deep = b"[" * 100_000 + b'"' + GITLAB.encode() + b'"' + b"]" * 100_000
    assert KEYS.redact_json(deep, Masking()) == deep.replace(GITLAB.encode(), b"[redacted:gitlab-token]")
    for pad in [*range(65_500, 65_560), 2040, 66_550, 131_060, 300_000]:
        text = "x" * pad + " " + GITLAB + " " + "y" * 70_000 + " password=hunter2 " + "z" * 10
        masking = Masking()
        KEYS.redact_json(json.dumps([1, text, {"password": "hunter2", "q": text[:9]}]).encode(), masking)
        assert masking.found == {"gitlab-token": 1, "credential": 2}


@st.composite
def planted(draw: st.DrawFn) -> tuple[Any, Counter[str], list[str]]:
    """Any JSON, with known secrets in some of its strings."""
    found: Counter[str] = Counter()
    secrets: list[str] = []
    formats = [each for each in FORMATS if each.level == "tokens"]

    def plant(value: Any) -> Any:
        if isinstance(value, str):
            if not draw(st.booleans()):
                return value
            kind = draw(st.sampled_from(formats))
            text, secret = kind.example()
            found[kind.rule] += 1
            secrets.append(secret)
            return f"{value} {text} {value}"
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
def test_every_planted_secret_is_masked_and_counted(
    plan: tuple[Any, Counter[str], list[str]], ascii_only: bool, indent: int | None
) -> None:
    value, expected, secrets = plan
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    masking = Masking()
    clean = LEVELS["tokens"].redact_json(raw, masking)
    assert masking.found == expected
    assert shape(json.loads(clean)) == shape(value)
    text = json.dumps(json.loads(clean), ensure_ascii=False)
    assert not any(json.dumps(secret)[1:-1] in text for secret in secrets)
    assert (clean is raw) == (not expected)


noise = st.lists(
    st.one_of(
        words,
        st.sampled_from([each.example()[0] for each in FORMATS]),
        st.sampled_from(ORDINARY[:5] + ORDINARY[9:]),
        st.sampled_from(
            [
                "password",
                "token",
                "=",
                ":",
                '"',
                "'",
                "[redacted:",
                "]",
                "[redacted:jwt:abcdef]",
                " ",
                "\n",
                "\\",
            ]
        ),
    ),
    max_size=8,
).map("".join)


@settings(max_examples=examples(300))
@given(noise, st.dictionaries(st.sampled_from(["password", "a", "token", "n"]), noise, max_size=3))
@example("see [redacted:github-token:aaaaaa] and [redacted:x]", {})
def test_what_was_masked_comes_back_exactly(text: str, members: dict[str, str]) -> None:
    """Also if the text was full of things that look like placeholders."""
    memory = Memory()
    value = [text, members, {"text": json.dumps(members)}]
    raw = json.dumps(value).encode()
    clean = KEYS.redact_json(raw, Masking(memory.mark))
    assert json.loads(restored(clean, memory.values.get, strict=True)) == value
    assert restored(json.loads(clean), memory.values.get, strict=True) == value
    again = KEYS.redact_text(text, Masking(memory.mark))
    assert restored(f"before {again} after", memory.values.get, strict=True) == f"before {text} after"


@settings(max_examples=examples(200))
@given(noise, st.dictionaries(st.sampled_from(["password", "a", "token", "n"]), noise, max_size=3))
def test_raw_and_decoded_agree(text: str, members: dict[str, str]) -> None:
    """The triggers on raw JSON miss nothing that the rules find in the decoded value."""
    value = [text, members, {"text": json.dumps(members)}]
    slow = Redactor("keys", {"never": r"[^\s\S]\d"})  # it looks at every value
    for ascii_only in (True, False):
        raw = json.dumps(value, ensure_ascii=ascii_only).encode()
        assert KEYS.redact_json(raw, Masking()) == slow.redact_json(raw, Masking())


def test_an_unknown_placeholder_is_refused() -> None:
    for text in ("x [redacted:jwt:aaaaaa] y", "[redacted:jwt]"):
        for arguments in (json.dumps({"a": text}).encode(), {"a": [text]}):
            with pytest.raises(Failure, match="unknown here"):
                restored(arguments, lambda _: None, strict=True)
            assert restored(arguments, lambda _: None, strict=False) == arguments
    assert restored(b'{"a":"[redacted:jwt:aaaaaa]"}', {"aaaaaa": 'p"\n\\é'}.get, strict=True) == (
        b'{"a":"p\\"\\n\\\\\xc3\xa9"}'
    )


GARBLED = [
    "[REDACTED:JWT:AAAAAA]",
    "[Redacted:jwt:aaaaaa]",
    "[redacted:jwt:aaaaaa ]",
    "[redacted: jwt: aaaaaa]",
    "[redacted:jwt:aaaaaa",
    "redacted:jwt:aaaaaa",
]


@pytest.mark.parametrize("text", GARBLED)
def test_what_was_a_placeholder_is_refused_too(text: str) -> None:
    """Written as it is, it would take the place of a secret."""
    for arguments in (json.dumps({"a": f"x {text} y"}).encode(), {"a": [text]}):
        with pytest.raises(Failure, match="unknown here"):
            restored(arguments, {"aaaaaa": "p"}.get, strict=True)
        assert restored(arguments, {"aaaaaa": "p"}.get, strict=False) == arguments
    memory = Memory()
    whole = f"read: {text}, [{text}] [redacted: by the court] unredacted:a:bcde"
    shown = KEYS.redact_text(whole, Masking(memory.mark))
    assert restored(shown, memory.values.get, strict=True) == whole


def test_the_notice() -> None:
    masking = Masking(lambda name, value: f"[redacted:{name}:abcdef]")
    KEYS.redact_text(f"{GITHUB} {GITLAB} password=hunter2 password=hunter3", masking)
    assert masking.notice().startswith(
        "4 secrets are masked (2 credential, 1 github-token, 1 gitlab-token). Use a"
    )
    masking = Masking()
    KEYS.redact_text(GITHUB, masking)
    assert masking.notice() == (
        "1 secret is masked (1 github-token). A placeholder without an id cannot be restored: do not write it back."
    )


# -- patterns of the user -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "value", "clean"),
    [
        (r"TICKET-\d{6}", "see TICKET-123456.", "see [redacted:mine]."),
        (r"(?i)ticket-\d+", "see TicKet-1.", "see [redacted:mine]."),
        (r"id=(?P<secret>\d+)", "id=55 id=66", "id=[redacted:mine] id=[redacted:mine]"),
        (r"\d{3}-\d{2}-\d{4}", "ssn 123-45-6789", "ssn [redacted:mine]"),
        (r"é+", "caféé", "caf[redacted:mine]"),
        ("a/b", "a/b", "[redacted:mine]"),
        (r"(?:a+)+$", "x ab aaa", "x ab [redacted:mine]"),
        (r"^whole$", "whole", "[redacted:mine]"),
    ],
)
def test_patterns_of_the_user(pattern: str, value: str, clean: str) -> None:
    redactor = Redactor("custom", {"mine": pattern})
    assert masked(value, redactor)[0] == clean
    for raw in (json.dumps({"k": [value]}), json.dumps({"k": [value]}, ensure_ascii=False)):
        assert json.loads(redactor.redact_json(raw.encode(), Masking())) == {"k": [clean]}
    escaped = "".join(f"\\u{ord(c):04x}" for c in value)
    assert json.loads(redactor.redact_json(b'"%s"' % escaped.encode(), Masking())) == clean


def test_a_rule_can_be_replaced_and_switched_off() -> None:
    assert masked(GITHUB, Redactor("tokens", {"github-token": ""})) == (GITHUB, Counter())
    assert (
        masked(GITHUB, Redactor("tokens", {"github-token": "ghp_"}))[0]
        == f"[redacted:github-token]{GITHUB[4:]}"
    )
    assert (
        masked(f"{GITHUB} AB-1", Redactor("custom", {"mine": "AB-[0-9]"}))[0] == f"{GITHUB} [redacted:mine]"
    )


@pytest.mark.parametrize(
    ("name", "pattern", "reason"),
    [
        ("mine", "a(b", r"redaction pattern 'mine': missing \)"),
        ("mine", "*a", "no argument for repetition operator"),
        ("mine", r"(?<=a)b", "invalid perl operator.*the syntax is RE2's"),
        ("mine", "a*", "matches the empty string"),
        ("my name", "a", "a name consists of"),
    ],
)
def test_patterns_that_cannot_be_used_say_why(name: str, pattern: str, reason: str) -> None:
    with pytest.raises(BadPattern, match=reason):
        Redactor("custom", {name: pattern})


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
        *("curl -u ", "login password ", "(a+)+"),
    ],
)
def test_nothing_blows_up(unit: str) -> None:
    """No time is asserted: a rule that is not linear here would not come back."""
    masked(unit * (400_000 // len(unit)))
    masked("a" * 100_000, Redactor("custom", {"mine": "(a+)+b"}))
