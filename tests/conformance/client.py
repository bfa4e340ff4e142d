"""A client for the suite's client scenarios: the SDK's, straight to the suite's server or behind our bridge.

    python -m tests.conformance.client direct|bridge URL

Strategy: in both cases the same client does the same things: it lists what there is, and calls every tool.
Directly, it logs in with the SDK's own provider; behind the bridge, with the command that a failure names. The
person at the browser is the same, too: one that opens the address and is sent back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import ValidationError

from mcp_envelope.cli.main import main as command_line

_DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
_REDIRECT: Final = "http://127.0.0.1:33418/callback"
_MODERN: Final = "2026-07-28"
# How often a client tries to log in before it gives up.
_TRIES: Final = 3
_EXAMPLES: Final = {"integer": 5, "number": 5, "string": "text", "boolean": True, "object": {}, "array": []}

Context = dict[str, Any]


def context() -> Context:
    found: Context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    return found


# -- what every client does -----------------------------------------------------------------------------------


async def talk(client: Client) -> bool:
    """List what there is, and call every tool; False if a call failed for want of a login."""
    listed = (await client.list_tools()).tools
    tools = [tool for tool in listed if tool.name != "envelope_read"]
    calls = context().get("toolCalls") or [
        {"name": tool.name, "arguments": _arguments(tool, tools)} for tool in tools
    ]
    capabilities = client.server_capabilities
    if capabilities is not None and capabilities.resources is not None:
        for resource in (await client.list_resources()).resources[:1]:
            await client.read_resource(str(resource.uri))
    if capabilities is not None and capabilities.prompts is not None:
        for prompt in (await client.list_prompts()).prompts[:1]:
            await client.get_prompt(prompt.name)
    results: list[bool] = []

    async def call(name: str, arguments: dict[str, Any]) -> None:
        try:
            result = await client.call_tool(name, arguments)
        except MCPError as error:
            # A tool that the client does not trust, or that fails on purpose.
            results.append("mcp-envelope login" not in str(error))
        except ValidationError:
            # A result that the SDK does not take; other calls go on.
            results.append(True)
        else:
            results.append(not (result.is_error and "LOGIN_REQUIRED" in str(result.content)))

    async with anyio.create_task_group() as group:
        for each in calls:
            group.start_soon(call, each["name"], each["arguments"])
    return all(results)


def _arguments(tool: types.Tool, tools: list[types.Tool]) -> dict[str, Any]:
    schema = tool.input_schema
    filled: dict[str, Any] = {}
    for name in schema.get("required", []):
        kind = schema.get("properties", {}).get(name, {}).get("type", "string")
        filled[name] = tools[0].input_schema if name == "schema" else _EXAMPLES.get(kind, "text")
    return filled


async def _elicited(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    if not isinstance(params, types.ElicitRequestFormParams):
        return types.ElicitResult(action="decline")
    filled: dict[str, Any] = {}
    for name, field in params.requested_schema.get("properties", {}).items():
        filled[name] = field.get("default", _EXAMPLES.get(field.get("type", "string"), "text"))
    return types.ElicitResult(action="accept", content=filled)


@asynccontextmanager
async def connected(target: Any) -> AsyncIterator[Client]:
    is_modern = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION") == _MODERN
    mode = "auto" if is_modern else "legacy"
    # With a callback, a client also says that it shows addresses; here a person reads the failure.
    is_about_login = os.environ.get("MCP_CONFORMANCE_SCENARIO", "").startswith("auth/")
    callback = None if is_about_login else _elicited
    async with Client(target, mode=mode, elicitation_callback=callback, read_timeout_seconds=20) as client:
        yield client


# -- straight to the server -----------------------------------------------------------------------------------


class _Storage:
    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self._client = client
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


def _provider(url: str) -> OAuthClientProvider:
    given = context()
    client_id, secret = str(given.get("client_id", "")), str(given.get("client_secret", ""))
    if "client-credentials" in os.environ.get("MCP_CONFORMANCE_SCENARIO", ""):
        issuer = given.get("issuer")
        if "private_key_pem" in given:
            signed = SignedJWTParameters(
                issuer=client_id,
                subject=client_id,
                signing_key=given["private_key_pem"],
                signing_algorithm=given.get("signing_algorithm", "ES256"),
            )
            provider = signed.create_assertion_provider()
            return PrivateKeyJWTOAuthProvider(url, _Storage(None), client_id, provider, issuer=issuer)
        return ClientCredentialsOAuthProvider(url, _Storage(None), client_id, secret, issuer=issuer)
    known = None
    if client_id:
        known = OAuthClientInformationFull.model_validate(
            {
                "client_id": client_id,
                "client_secret": secret or None,
                "redirect_uris": [_REDIRECT],
                "token_endpoint_auth_method": "client_secret_basic" if secret else "none",
            }
        )
    answers: list[str] = []

    async def show(address: str) -> None:
        async with httpx2.AsyncClient() as browser:
            answers.append((await browser.get(address)).headers["location"])

    async def answer() -> AuthorizationCodeResult:
        said = parse_qs(urlsplit(answers.pop()).query)
        return AuthorizationCodeResult(
            code=said["code"][0], state=said.get("state", [None])[0], iss=said.get("iss", [None])[0]
        )

    metadata = OAuthClientMetadata.model_validate({"redirect_uris": [_REDIRECT], "client_name": "direct"})
    return OAuthClientProvider(url, metadata, _Storage(known), show, answer, _DOCUMENT)


async def direct(url: str) -> None:
    async with (
        httpx2.AsyncClient(auth=_provider(url), timeout=20) as http,
        connected(streamable_http_client(url, http_client=http)) as client,
    ):
        await talk(client)


# -- behind the bridge ----------------------------------------------------------------------------------------


async def bridge(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MCP_")}
        environment = {**clean, "XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder}
        arguments = ["-m", "mcp_envelope", "proxy", "--url", url]
        parameters = StdioServerParameters(
            command=sys.executable, args=arguments, env=environment, cwd=Path.cwd()
        )
        for left in reversed(range(_TRIES + 1)):
            try:
                async with connected(stdio_client(parameters)) as client:
                    while not await talk(client) and left:
                        left -= 1
                        await anyio.to_thread.run_sync(_log_in, url, environment)
                    return
            except Exception as error:
                if not left or "mcp-envelope login" not in str(_innermost(error)):
                    raise
            await anyio.to_thread.run_sync(_log_in, url, environment)


def _log_in(url: str, environment: dict[str, str]) -> None:
    """What a person does who reads the failure: run the command, and open the address.

    It runs in this process: the SDK, which it needs, takes longer to import than the command to run.
    """
    given = context()
    options: list[str] = []
    more = {"MCP_ENVELOPE_CLIENT_METADATA_URL": _DOCUMENT}
    if given.get("client_id"):
        options += ["--client-id", given["client_id"]]
    if given.get("client_secret"):
        options += ["--client-secret-env", "SECRET"]
        more["SECRET"] = given["client_secret"]
    if "client-credentials" in os.environ.get("MCP_CONFORMANCE_SCENARIO", ""):
        options.append("--client-credentials")
    if "private_key_pem" in given:
        key = Path(environment["XDG_STATE_HOME"]) / "key.pem"
        key.write_text(given["private_key_pem"])
        options += ["--private-key-file", str(key)]
    os.environ.update({**environment, **more})
    sys.stdin = None
    reading, writing = os.pipe()
    person = threading.Thread(target=_open, args=(reading,))
    person.start()
    with open(writing, "w") as output, contextlib.redirect_stdout(output):
        code = command_line(["login", url, "--no-browser", "--timeout", "15", *options])
    person.join()
    if code:
        raise OAuthFlowError("the login failed")


def _open(reading: int) -> None:
    with open(reading) as said:
        for address in said:
            answer = httpx2.get(address.strip(), follow_redirects=False).headers["location"]
            httpx2.get(answer)


def main(way: str, url: str) -> int:
    # Sampling, and the credentials of a machine without an issuer, are deprecated.
    warnings.simplefilter("ignore")
    try:
        asyncio.run((direct if way == "direct" else bridge)(url))
    except Exception as error:
        print(repr(_innermost(error)), file=sys.stderr)
        return 1
    return 0


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
