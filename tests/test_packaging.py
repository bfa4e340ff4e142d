"""What people install: metadata, the registry's manifest and the files for containers agree with the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.release import disagreements

from mcp_envelope.cli.proxy import make_parser
from mcp_envelope.proxy.metrics import Metrics

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = PYPROJECT["project"]
BUILD: dict[str, Any] = PYPROJECT["tool"]["hatch"]["build"]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def test_one_version_stands_everywhere() -> None:
    assert disagreements() == []


def test_the_registry_finds_its_name_in_the_readme() -> None:
    """It takes a package on PyPI for ours if the package's description has the server's name."""
    server = json.loads((ROOT / "server.json").read_text())
    assert f"<!-- mcp-name: {server['name']} -->" in (ROOT / PROJECT["readme"]).read_text()
    assert len(server["description"]) <= 100
    assert server["repository"]["url"] == PROJECT["urls"]["Repository"]
    (package,) = server["packages"]
    assert package["identifier"] == PROJECT["name"]
    words = [each.get("value") for each in package["packageArguments"]]
    assert words[:2] == ["proxy", "--"]


def test_the_image_has_extras_that_exist() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    (extras,) = re.findall(r"\[(\w+(?:,\w+)*)\]\"", dockerfile)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()


def test_the_image_gets_all_files_that_it_is_built_from() -> None:
    """Those that building the wheel reads are copied, and none that is copied is ignored."""
    lines = re.findall(r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "Dockerfile").read_text(), re.M)
    copied = {path for line in lines for path in line.split()}
    wheel = BUILD["targets"]["wheel"]
    assert {PROJECT["readme"], *PROJECT["license-files"], *wheel["sbom-files"]} <= copied
    assert {Path(package).parts[0] for package in wheel["packages"]} <= copied
    not_ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for path in copied:
        assert (ROOT / path).exists()
        assert f"!{path}" in not_ignored


def test_the_replicas_command_is_one_that_the_proxy_takes() -> None:
    service = compose()["services"]["envelope"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    command, *arguments = service["command"]
    assert command == "proxy"
    options = make_parser().parse_args(arguments)
    port = options.listen.rpartition(":")[2]
    assert f"EXPOSE {port}" in (DEPLOY / "Dockerfile").read_text()
    assert f"proxy_pass http://$replicas:{port}" in (DEPLOY / "nginx.conf").read_text()
    assert f"port: {port}" in (DEPLOY / "prometheus.yml").read_text()
    assert options.vault.removeprefix("valkey://").partition(":")[0] in compose()["services"]


def test_mounted_files_exist() -> None:
    for service in compose()["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in compose()["volumes"] or (DEPLOY / source).is_file()


@pytest.mark.parametrize("panel", json.loads((DEPLOY / "grafana/dashboard.json").read_text())["panels"])
def test_the_dashboard_asks_for_metrics_that_exist(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        names = re.findall(r"mcp_envelope_\w+", target["expr"])
        assert names
        for name in names:
            assert f"# TYPE {name} " in Metrics().text()


@pytest.mark.process
@pytest.mark.parametrize("is_fine", [True, False])
def test_the_action_reports_and_fails(tmp_path: Path, is_fine: bool) -> None:
    """Its script is run as it stands there, with an `uvx` that starts the working copy, or one that fails."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = [step for step in action["runs"]["steps"] if "run" in step]
    uvx = tmp_path / "uvx"
    fine = f'shift 3\nexec {sys.executable} -m mcp_envelope "$@"\n'
    failing = 'until [ "$1" = --output ]; do shift; done\necho some report > "$2"\nexit 1\n'
    uvx.write_text(f"#!/bin/sh\n{fine if is_fine else failing}")
    uvx.chmod(0o755)
    calls, summary = tmp_path / "calls.json", tmp_path / "summary"
    calls.write_text('{"list_tickets": {}}')
    server = f"'{sys.executable}' '{ROOT / 'src/mcp_envelope/demo/tickets.py'}'"
    inputs = {
        **dict.fromkeys(action["inputs"], ""),
        "command": server,
        "arguments": str(calls),
        "options": "--tools list_tickets --envelope",
        "badge": str(tmp_path / "badge.svg"),
    }
    values = {name: inputs[re.sub(r"\W|inputs", "", value)] for name, value in step["env"].items()}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(tmp_path),
            "GITHUB_STEP_SUMMARY": str(summary),
            **values,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == (not is_fine), done
    assert summary.read_text() == done.stdout
    if is_fine:
        assert "what claude-code takes | 1 of 1 |" in done.stdout
        # The badge of README.md is this one.
        assert (tmp_path / "badge.svg").read_text() == (ROOT / "docs" / "check.svg").read_text()
    else:
        assert done.stdout == "some report\n"
