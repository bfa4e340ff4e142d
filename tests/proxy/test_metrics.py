"""Counters as Prometheus reads them. The parser is ours, made from the description of the format."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest

from mcp_envelope.proxy.metrics import Metrics
from mcp_envelope.vault.ledger import LedgerEntry

from . import sites

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? (-?[0-9]+(?:\.[0-9]+)?)")


def read(text: str) -> dict[str, float]:
    """Samples by their names and labels. Whatever Prometheus would refuse fails here."""
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    samples: dict[str, float] = {}
    last = ""
    for line in text.splitlines():
        if help_line := re.fullmatch(rf"# HELP ({_NAME}) .+", line):
            assert help_line[1] not in kinds, "a metric is described once, and its samples stand together"
            last = help_line[1]
        elif type_line := re.fullmatch(rf"# TYPE ({_NAME}) (counter|gauge)", line):
            assert type_line[1] == last
            kinds[last] = type_line[2]
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample is not None, f"no sample: {line!r}"
            assert sample[1] == last
            assert kinds[last] != "counter" or sample[1].endswith("_total")
            name = sample[1] + (f"{{{sample[2]}}}" if sample[2] else "")
            assert name not in samples
            samples[name] = float(sample[3])
    return samples


def _call(**said: object) -> LedgerEntry:
    return LedgerEntry(at=0.0, tool="rows", **said)  # type: ignore[arg-type]


def test_a_new_one_has_its_plain_counters_at_nothing() -> None:
    samples = read(Metrics().text())
    assert samples["mcp_envelope_upstream_errors_total"] == 0
    assert samples["mcp_envelope_bytes_before_total"] == 0
    assert samples["mcp_envelope_requests_in_flight"] == 0


def test_results_are_counted_by_what_became_of_them() -> None:
    metrics = Metrics()
    metrics.noted(_call(bytes_before=100, bytes_after=100, before=25, after=25))
    metrics.noted(_call(bytes_before=5000, bytes_after=900, before=1200, after=200, cuts=3))
    metrics.noted(
        _call(bytes_before=8, bytes_after=8, before=400, after=40, unit="bytes", code="RESULT_TOO_LARGE")
    )
    samples = read(metrics.text())
    assert samples['mcp_envelope_calls_total{outcome="whole"}'] == 1
    assert samples['mcp_envelope_calls_total{outcome="cut"}'] == 1
    assert samples['mcp_envelope_calls_total{outcome="failed"}'] == 1
    assert samples['mcp_envelope_failures_total{code="RESULT_TOO_LARGE"}'] == 1
    assert samples["mcp_envelope_bytes_before_total"] == 5108
    assert samples["mcp_envelope_bytes_after_total"] == 1008
    # Bytes count as a quarter of a token each.
    assert samples["mcp_envelope_tokens_before_total"] == 25 + 1200 + 100
    assert samples["mcp_envelope_tokens_after_total"] == 25 + 200 + 10


def test_what_others_say_cannot_break_the_format() -> None:
    metrics = Metrics()
    metrics.noted(_call(code='A"B\\C\nD'))
    assert any("A" in name for name in read(metrics.text()))


def test_the_proxy_tells_what_it_did(tmp_path: Path) -> None:
    def script(seen: sites.Seen) -> sites.Reply:
        asked = seen.json
        if asked["method"] == "tools/list":
            return sites.json_reply(sites.result(asked["id"], sites.tools()))
        return sites.json_reply(sites.result(asked["id"], sites.rows(asked["params"]["arguments"]["count"])))

    with (
        sites.serving(sites.Scripted(script), lifespan="off") as url,
        sites.proxied(f"{url}/mcp", tmp_path) as (address, _),
        sites.client() as client,
    ):
        sites.post(address, sites.request("tools/list"))
        sites.post(address, sites.call(count=3))
        sites.post(address, sites.call(count=3000))
        client.request("PROPFIND", f"{address}/mcp")
        response = client.get(f"{address}/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = read(response.text)
    assert samples['mcp_envelope_requests_total{method="POST",status="200"}'] == 3
    assert any('method="other"' in name for name in samples), "rare methods share a series"
    assert samples['mcp_envelope_calls_total{outcome="whole"}'] == 1
    assert samples['mcp_envelope_calls_total{outcome="cut"}'] == 1
    assert samples["mcp_envelope_bytes_before_total"] > 10 * samples["mcp_envelope_bytes_after_total"] > 0
    assert samples["mcp_envelope_requests_in_flight"] == 0


def test_a_server_that_is_not_there_is_counted(tmp_path: Path) -> None:
    with sites.proxied("http://127.0.0.1:9/mcp", tmp_path) as (address, proxy):
        assert sites.post(address, sites.call()).status_code == httpx2.codes.OK
        assert sites.post(address, sites.request("ping")).status_code == httpx2.codes.BAD_GATEWAY
    samples = read(proxy.metrics.text())
    assert samples["mcp_envelope_upstream_errors_total"] == 2
    assert samples['mcp_envelope_failures_total{code="UPSTREAM_UNAVAILABLE"}'] == 1


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_our_own_pages_never_reach_the_server(path: str, tmp_path: Path) -> None:
    server = sites.Scripted(lambda seen: sites.Reply(200, [], [b"theirs"]))
    with (
        sites.serving(server, lifespan="off") as url,
        sites.proxied(f"{url}/mcp", tmp_path) as (address, _),
        sites.client() as client,
    ):
        assert client.get(address + path).status_code == 200
        assert client.head(address + path).status_code == 200
        assert client.get(f"{address}{path}/more").text == "theirs"
    assert [seen.path for seen in server.seen] == [f"{path}/more"]
