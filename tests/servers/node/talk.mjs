// A client of the TypeScript SDK, driven by JSON lines.
//
// The one argument says which SDK (1 or 2), which protocol version (2 only; none means the legacy era), and the
// server: a command to start, or a url; with a redirect, it logs in there as a browser would. Each line of standard input is a request, {"list": true} or
// {"call": NAME, "arguments": {…}}; each is answered by one line, {"result": …} or {"error": {code, message}}.
// The SDK validates results against the output schemas of the tools that were listed.

import { createInterface } from "node:readline";

const { sdk, version, url, redirect, ...server } = JSON.parse(process.argv[2]);
const info = { name: "talk", version: "1.0.0" };

function login() {
  const kept = {};
  return {
    redirectUrl: redirect,
    clientMetadata: { redirect_uris: [redirect], client_name: "talk", token_endpoint_auth_method: "none" },
    clientInformation: () => kept.client,
    saveClientInformation: (client) => void (kept.client = client),
    tokens: () => kept.tokens,
    saveTokens: (tokens) => void (kept.tokens = tokens),
    codeVerifier: () => kept.verifier,
    saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
    async redirectToAuthorization(address) {
      let there = String(address);
      while (!there.startsWith(redirect)) {
        there = (await fetch(there, { redirect: "manual" })).headers.get("location");
      }
      kept.answer = new URL(there).searchParams;
    },
    answer: () => kept.answer,
  };
}

async function connected() {
  if (!redirect) return connect();
  const authProvider = login();
  const transports = [];
  try {
    return await connect(authProvider, transports);
  } catch (error) {
    if (!authProvider.answer()) throw error;
    const answer = authProvider.answer();
    await transports[0].finishAuth(...(sdk === 1 ? [answer.get("code")] : [answer]));
    return connect(authProvider, transports);
  }
}

async function connect(authProvider, transports = []) {
  if (sdk === 1) {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const client = new Client(info);
    transports.push(url ? new StreamableHTTPClientTransport(new URL(url), { authProvider }) : new StdioClientTransport(server));
    await client.connect(transports.at(-1));
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  const client = new Client(info, { versionNegotiation: { mode: version ? { pin: version } : "legacy" } });
  transports.push(url ? new StreamableHTTPClientTransport(new URL(url), { authProvider }) : new StdioClientTransport(server));
  await client.connect(transports.at(-1));
  return client;
}

function answer(line) {
  process.stdout.write(JSON.stringify(line) + "\n");
}

function told(error) {
  return { error: { code: error.code ?? null, message: String(error.message ?? error) } };
}

try {
  const client = await connected();
  answer({ result: "connected" });
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    try {
      const result = request.list
        ? await client.listTools()
        : await client.callTool({ name: request.call, arguments: request.arguments });
      answer({ result });
    } catch (error) {
      answer(told(error));
    }
  }
  await client.close();
} catch (error) {
  answer(told(error));
  process.exitCode = 1;
}
