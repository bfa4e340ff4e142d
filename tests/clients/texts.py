"""Configuration files as people write them: every spelling the formats allow, at random."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import strategies as st

WORDS = (
    "npx",
    "-y",
    "server",
    "--",
    "a b",
    "ü\"'\\",
    "\t",
    "{",
    "//x",
    "#y",
    "",
    "/*",
    "${input:key}",
    "proxy",
    "é",
)
NAMES = ("fs", "git hub", "ä.b", 'q"x', "s-1", "command", "args", "url")
HEADERS = ("Authorization", "X-Api-Key", "x_y", "a.b")


def texts() -> st.SearchStrategy[Random]:
    return st.randoms(use_true_random=False)


def entry(random: Random, *, is_toml: bool, is_remote: bool) -> dict[str, Any]:
    value: dict[str, Any] = {}
    if is_remote:
        value["url"] = f"https://example.com/{random.choice(('mcp', 'ü', 'a%20b'))}"
        if not is_toml and random.random() < 0.3:
            value[random.choice(("httpUrl", "serverUrl"))] = value.pop("url")
        elif not is_toml and random.random() < 0.5:
            value["type"] = random.choice(("http", "sse"))
        if random.random() < 0.6:
            names = random.sample(HEADERS, random.randint(0, 3))
            value["http_headers" if is_toml else "headers"] = {name: random.choice(WORDS) for name in names}
        if is_toml and random.random() < 0.3:
            value["bearer_token_env_var"] = "TOKEN"
    else:
        value["command"] = random.choice([word for word in WORDS if word])
        if random.random() < 0.7:
            value["args"] = [random.choice(WORDS) for _ in range(random.randint(0, 4))]
        if random.random() < 0.5:
            value["env"] = {"KEY": "v", "A": random.choice(WORDS)}
    if random.random() < 0.4:
        value["timeout"] = 5
    if random.random() < 0.3:
        value["tools"] = ["a", "b"]
    members = list(value.items())
    random.shuffle(members)
    return dict(members)


def entries(random: Random, *, is_toml: bool) -> dict[str, dict[str, Any]]:
    names = random.sample(NAMES, random.randint(1, 4))
    return {name: entry(random, is_toml=is_toml, is_remote=random.random() < 0.4) for name in names}


class Jsonc:
    """A writer of JSON with comments that never writes the same way twice."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.newline = random.choice(("\n", "\r\n"))
        self.is_plain = random.random() < 0.3

    def file(self, servers: dict[str, Any]) -> str:
        members: list[tuple[str, Any]] = [("theme", {"mcpServers": [1.0, None, "x,]}"]}), ("n", -0.5e3)]
        key = self.random.choice(("mcpServers", "servers"))
        members.insert(self.random.randint(0, 2), (key, servers))
        mark = "\ufeff" if self.random.random() < 0.2 else ""
        return f"{mark}{self.gap()}{self.object(members)}{self.gap()}"

    def value(self, value: Any) -> str:
        if isinstance(value, dict):
            return self.object(list(value.items()))
        if isinstance(value, list):
            return self.between("[", [self.value(item) for item in value], "]")
        return self.string(value) if isinstance(value, str) else json.dumps(value)

    def object(self, members: list[tuple[str, Any]]) -> str:
        parts = [f"{self.key(name)}{self.gap()}:{self.gap()}{self.value(value)}" for name, value in members]
        return self.between("{", parts, "}")

    def key(self, name: str) -> str:
        return json.dumps(name, ensure_ascii=False)

    def between(self, opening: str, parts: list[str], closing: str) -> str:
        if self.is_plain:
            return f"{opening}{', '.join(parts)}{closing}"
        body = f"{self.gap()},{self.gap()}".join(parts)
        comma = "," if parts and self.random.random() < 0.3 else ""
        return f"{opening}{self.gap()}{body}{self.gap()}{comma}{self.gap()}{closing}"

    def string(self, text: str) -> str:
        if self.random.random() < 0.2:
            return '"' + "".join(f"\\u{ord(char):04x}" for char in text) + '"'
        return json.dumps(text, ensure_ascii=self.random.random() < 0.3)

    def gap(self) -> str:
        if self.is_plain:
            return self.random.choice(("", "", " "))
        nl = self.newline
        comments = ('/* , " ] */', f"// }} \" '{nl}", f" // ,{nl}  ")
        pieces = ("", "", "", " ", "  ", nl, f"{nl}    ", f"{nl}\t", *comments)
        return "".join(self.random.choice(pieces) for _ in range(self.random.randint(0, 2)))


class Toml:
    """The same for TOML."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.newline = random.choice(("\n", "\r\n"))

    def file(self, servers: dict[str, dict[str, Any]]) -> str:
        root: list[str] = [self.line('model = "x"')]
        inline: list[str] = []
        tables: list[str] = [f"{self.line('[other]')}{self.line('command = 1979-05-27 07:32:00')}"]
        for name, value in servers.items():
            way = self.random.random()
            if way < 0.2:
                root += [self.line(f"mcp_servers.{self.key(name)}.{line}") for line in self.flat(value)]
            elif way < 0.4:
                inline.append(f"{self.key(name)} = {self.value(value)}")
            else:
                tables.append(self.table(f"mcp_servers . {self.key(name)}", value))
        if root[1:] and inline:  # a table that dotted keys made cannot be opened again
            root += [self.line(f"mcp_servers.{line}") for line in inline]
        elif inline:
            tables.append("".join(map(self.line, ("[mcp_servers]", *inline))))
        self.random.shuffle(tables)
        if root[1:]:  # nor can one of its tables
            tables = [part for part in tables if "mcp_servers" not in part]
        tables.append(f"{self.line('[[list]]')}{self.line('command = [[1, 2], {a.b = nan}]')}")
        text = "".join((*root, *tables))
        mark = "\ufeff" if self.random.random() < 0.2 else ""
        return mark + (text.rstrip() if self.random.random() < 0.3 else text)

    def table(self, name: str, value: dict[str, Any]) -> str:
        own: list[str] = []
        below: list[str] = []
        for key, inner in value.items():
            way = self.random.random()
            if isinstance(inner, dict) and way < 0.4:
                below.append(self.line(f"[{name}.{key}]"))
                below += [self.line(line) for line in self.flat(inner)]
            elif isinstance(inner, dict) and inner and way < 0.7:
                own += [self.line(f"{key}.{line}") for line in self.flat(inner)]
            else:
                own += [self.line(line) for line in self.flat({key: inner})]
        return "".join((self.line(f"[{name}]"), *own, *below))

    def flat(self, value: dict[str, Any]) -> list[str]:
        return [f"{self.key(name)}{self.equals()}{self.value(inner)}" for name, inner in value.items()]

    def value(self, value: Any) -> str:
        if isinstance(value, dict):
            return "{ " + ", ".join(self.flat(value)) + " }"
        if isinstance(value, list):
            body = f"{self.gap()},{self.gap()}".join(map(self.value, value))
            comma = "," if value and self.random.random() < 0.3 else ""
            return f"[{self.gap()}{body}{self.gap()}{comma}{self.gap()}]"
        return self.string(value) if isinstance(value, str) else json.dumps(value)

    def key(self, name: str) -> str:
        bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if bare and self.random.random() < 0.8:
            return name
        return f"'{name}'" if self.random.random() < 0.5 else json.dumps(name, ensure_ascii=False)

    def string(self, text: str) -> str:
        way = self.random.random()
        if way < 0.2 and "'" not in text:
            return f"'{text}'"
        if way < 0.3:
            return f'"""{self.newline}{json.dumps(text)[1:-1]}"""'
        return json.dumps(text, ensure_ascii=False)

    def equals(self) -> str:
        return self.random.choice((" = ", "=", "  =\t"))

    def gap(self) -> str:
        nl = self.newline
        pieces = ("", "", " ", nl, f"{nl}  ", f" # ] \" '{nl}", f"#,{nl}\t")
        return "".join(self.random.choice(pieces) for _ in range(self.random.randint(0, 2)))

    def line(self, text: str) -> str:
        indent = self.random.choice(("", "", "  ", "\t"))
        rest = self.random.choice(("", "", " # why [x] = \"'", "   "))
        blank = self.random.choice(("", "", self.newline, f"# a line{self.newline}"))
        return f"{blank}{indent}{text}{rest}{self.newline}"


class Yaml:
    """The same for YAML."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.newline = random.choice(("\n", "\r\n"))

    def file(self, servers: dict[str, dict[str, Any]]) -> str:
        if self.random.random() < 0.7:
            listed = [{"name": name, **value} for name, value in servers.items()]
            for each in listed:
                if self.random.random() < 0.3:
                    each["name"] = each.pop("name")  # last
            body: Any = listed
        else:
            body = servers
        parts = [
            self.line(0, "name: test # 'x"),
            self.line(0, "base: &base {temperature: 0.5, command: [.nan, 2026-01-02]}"),
            self.line(0, "models:") + self.line(2, "- <<: *base") + self.line(2, "  name: m"),
        ]
        parts.insert(self.random.randint(0, 3), self.block(0, "mcpServers", body))
        mark = "\ufeff" if self.random.random() < 0.2 else ""
        text = "".join(parts)
        return mark + (text.rstrip() if self.random.random() < 0.3 else text)

    def block(self, indent: int, key: str, value: Any) -> str:
        """A member in block style, if it is a collection that has something in it."""
        if not isinstance(value, (dict, list)) or not value or (indent and self.random.random() < 0.3):
            return self.line(indent, f"{self.key(key)}: {self.flow(value)}")
        lines = self.line(indent, f"{self.key(key)}:")
        if isinstance(value, dict):
            return lines + "".join(self.block(indent + 2, name, each) for name, each in value.items())
        deeper = indent + self.random.choice((0, 2))
        for item in value:
            if isinstance(item, dict):
                members = "".join(self.block(deeper + 2, name, each) for name, each in item.items())
                lines += self.dashed(members, deeper)
            else:
                lines += self.line(deeper, f"- {self.flow(item)}")
        return lines

    def dashed(self, members: str, indent: int) -> str:
        """An item's members, the first of them behind the dash."""
        kept = members.splitlines(keepends=True)
        first = next(number for number, line in enumerate(kept) if line.strip() and line.lstrip()[0] != "#")
        kept[first] = f"{' ' * indent}- {kept[first][indent + 2 :]}"
        return "".join(kept)

    def flow(self, value: Any) -> str:
        if isinstance(value, dict):
            return (
                "{" + ", ".join(f"{self.key(name)}: {self.flow(each)}" for name, each in value.items()) + "}"
            )
        if isinstance(value, list):
            return f"[{', '.join(map(self.flow, value))}]"
        return self.string(value) if isinstance(value, str) else json.dumps(value)

    def key(self, name: str) -> str:
        bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if bare and self.random.random() < 0.8:
            return name
        return json.dumps(name, ensure_ascii=False)

    def string(self, text: str) -> str:
        way = self.random.random()
        if way < 0.4 and text.isascii() and text.replace("-", "").isalpha() and text != "--":
            return text
        if way < 0.6 and text.isprintable():
            return "'" + text.replace("'", "''") + "'"
        return json.dumps(text, ensure_ascii=False)

    def line(self, indent: int, text: str) -> str:
        rest = self.random.choice(("", "", " # why [x] = \"'", "   "))
        blank = self.random.choice(("", "", self.newline, f"# a line{self.newline}"))
        return f"{blank}{' ' * indent}{text}{rest}{self.newline}"


WRITERS: dict[str, type[Jsonc | Toml | Yaml]] = {"json": Jsonc, "toml": Toml, "yaml": Yaml}
