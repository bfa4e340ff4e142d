"""The lab in small: what clients would show of results, directly and through the proxy.

`lab/results.json` says which lane a client's model gets, and how much of it before the client cuts it. `make lab`
runs the real clients.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab import cases, server

from mcp_envelope.config import Settings
from tests.proxy.harness import Talk, call, result

RESULTS = json.loads((Path(cases.__file__).parent / "results.json").read_text())
# In short lines, a line is so long.
_LINE = 7
_CODE_MODE = "codex"
_CODEX = {"codex-gpt-5.5": "gpt-5.5", "codex-other": "scripted"}
CASES = [
    each
    for each in cases.CASES
    if "picture" not in each.tool and "image" not in each.tool and each.tool not in cases.FILES
]


class Shown:
    """What a recorded client shows its model of a result."""

    def __init__(self, recorded: dict[str, Any], sent: dict[str, Any]) -> None:
        texts = [_text(block) for block in sent["content"]]
        structure = sent.get("structuredContent")
        lane, is_error = recorded["lane"], sent.get("isError")
        data = [] if structure is None else [json.dumps(structure, ensure_ascii=False, separators=(",", ":"))]
        if lane == "structured" and data and not is_error:
            texts = data
        elif lane == "both":
            texts = texts if data == texts else [*texts, *data]
        self.text = "\n".join(texts)
        limits = {each["kind"]: each for each in recorded["limits"]}
        kind = "error" if is_error else "structure" if texts == data else "text"
        lines = limits["short lines"]
        most_lines = lines["whole"] // _LINE if lines["beyond"] and kind == "text" else None
        self.is_cut = bool(limits[kind]["beyond"]) and len(self.text) >= limits[kind]["beyond"]
        if most_lines and lines["whole"] < limits["text"]["whole"] * 0.8:
            self.is_cut = self.is_cut or self.text.count("\n") > most_lines
        self.marks = cases.marks(self.text)


def _text(block: dict[str, Any]) -> str:
    resource = block.get("resource", {})
    return str(block.get("text") or resource.get("text") or json.dumps(block))


def through_the_proxy(talk: Talk, case: cases.Case, sent: dict[str, Any], meta: dict[str, Any]) -> Any:
    talk.send(call(7, case.tool, {"size": case.size}, _meta=meta))
    [back], _ = talk.reply(result(7, **sent))
    return json.loads(back)["result"]


def meeting(folder: Path, name: str) -> Talk:
    talk = Talk(folder)
    talk.gateway.settings = Settings(None, {}, start=folder)
    talk.meet(RESULTS[name]["client_info"]["name"])
    talk.listed(
        *[
            {"name": tool, "inputSchema": {"type": "object"}, **({"outputSchema": schema} if schema else {})}
            for tool, (_, schema) in server.TOOLS.items()
        ]
    )
    return talk


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("name", [name for name in RESULTS if name != _CODE_MODE])
def test_no_case_is_worse_through_the_proxy_than_directly(
    tmp_path: Path, name: str, case: cases.Case
) -> None:
    recorded, talk = RESULTS[name], meeting(tmp_path, name)
    sent = server.result(case.tool, case.size).model_dump(by_alias=True, exclude_none=True, mode="json")
    meta = {"x-codex-turn-metadata": {"model": _CODEX[name]}} if name in _CODEX else {}
    got = through_the_proxy(talk, case, sent, meta)
    directly, proxied = Shown(recorded, sent), Shown(recorded, got)
    if got == sent:
        return
    assert not proxied.is_cut, "the client would cut again what the proxy has cut"
    assert got.get("isError") == sent.get("isError")
    if directly.marks <= proxied.marks:
        return
    told = cases.way_back(proxied.text)
    assert told is not None, "the model sees no handle"
    [back], _ = talk.send(call("read", cases.READ, told, _meta=meta))
    page = json.loads(back)["result"]
    assert cases.marks(json.dumps(page)) - proxied.marks, "reading on gives nothing new"
    assert not Shown(recorded, page).is_cut
    # The note is at the beginning, because clients that cut keep that.
    assert proxied.text.find(str(told["handle"])) < len(proxied.text) // 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_program_of_a_client_gets_all_of_it(tmp_path: Path, case: cases.Case) -> None:
    sent = server.result(case.tool, case.size).model_dump(by_alias=True, exclude_none=True, mode="json")
    assert through_the_proxy(meeting(tmp_path, _CODE_MODE), case, sent, {"callId": "exec-1"}) == sent
