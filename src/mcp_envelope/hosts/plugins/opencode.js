// mcp-envelope for opencode: hands each result to `mcp-envelope hook opencode`, and puts back what comes of it.
import { spawn } from "node:child_process"

const COMMAND = process.env.MCP_ENVELOPE_COMMAND ?? "mcp-envelope"

function ask(event, directory) {
  return new Promise((resolve) => {
    const child = spawn(COMMAND, ["hook", "opencode"], { cwd: directory, stdio: ["pipe", "pipe", "inherit"] })
    const parts = []
    child.stdout.on("data", (part) => parts.push(part))
    // Whatever goes wrong, the result stays as it is.
    child.on("error", () => resolve(undefined))
    child.stdin.on("error", () => {})
    child.on("close", (code) => {
      const said = Buffer.concat(parts).toString("utf8")
      resolve(code === 0 && said ? JSON.parse(said) : undefined)
    })
    child.stdin.end(JSON.stringify(event))
  })
}

export const McpEnvelope = async ({ directory }) => ({
  config: async (config) => {
    config.mcp = { results: { type: "local", command: [COMMAND, "serve"] }, ...config.mcp }
  },
  "tool.execute.after": async ({ tool, args }, output) => {
    if (output) Object.assign(output, await ask({ tool, args, output }, directory))
  },
})
