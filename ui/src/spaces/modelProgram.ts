// The program with which a model takes part in a space. A program has one language.
import { spacePath } from "../routes"

/** The argument of a shell: names of spaces need no quotes, unless they are unusual. */
const quoted = (text: string) => (/^[\w.-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`)

/** The command that makes a token for a new participant, and prints it. */
export const commandFor = (space: string, participant = "MODEL") => `pellucid space add ${quoted(space)} --participant ${participant}`

export const programFor = (space: string) => {
  const url = new URL(`${spacePath(space)}/ws`, location.href)
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:"
  return `import asyncio, os
from pellucid import Agent
from pellucid.models.openai import OpenAIChatModel
from pellucid.spaces import AgentInSpace, Participant

async def main():
    model = OpenAIChatModel("MODEL", profile="vllm", base_url="${location.origin}/v1")
    token = os.environ["PELLUCID_SPACE_TOKEN"]
    async with Participant("${url.href}", token=token) as me, AgentInSpace(Agent(model), me):
        await asyncio.Future()

asyncio.run(main())
`
}
