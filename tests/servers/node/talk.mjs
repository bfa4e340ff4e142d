// A client of the TypeScript SDK, driven by JSON lines.
//
// The one argument says which SDK (1 or 2), which protocol version (2 only; none means the legacy era), and the
// server: a command to start, or a url. Each line of standard input is a request, {"list": true} or
// {"call": NAME, "arguments": {…}}; each is answered by one line, {"result": …} or {"error": {code, message}}.
// The SDK validates results against the output schemas of the tools that were listed.

import { createInterface } from "node:readline";

const { sdk, version, url, ...server } = JSON.parse(process.argv[2]);
const info = { name: "talk", version: "1.0.0" };

async function connected() {
  if (sdk === 1) {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const client = new Client(info);
    await client.connect(url ? new StreamableHTTPClientTransport(new URL(url)) : new StdioClientTransport(server));
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  const client = new Client(info, { versionNegotiation: { mode: version ? { pin: version } : "legacy" } });
  await client.connect(url ? new StreamableHTTPClientTransport(new URL(url)) : new StdioClientTransport(server));
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
