// The server's tools as switches, those of an MCP server together.
import "../styles/compose/dialogs.css"
import { Dialog } from "../primitives/Dialog"
import { fill } from "../text/fill"
import { visible } from "../text/visible"
import { words } from "../words"
import type { ServerTool } from "../api/types"
import type { ToolChoice } from "./toolChoice"

interface Props {
  choice: ToolChoice
  onClose: () => void
}

function byServer(tools: readonly ServerTool[]): [string | undefined, ServerTool[]][] {
  const groups = new Map<string | undefined, ServerTool[]>()
  for (const tool of tools) groups.set(tool.server, [...(groups.get(tool.server) ?? []), tool])
  return [...groups]
}

export function Tools({ choice, onClose }: Props) {
  const { tools, off, failed, change, load } = choice
  const isOn = ({ name }: ServerTool) => !off.includes(name)
  return (
    <Dialog className="dialog dialog--wide" label={words.toolChoice.title} onClose={onClose}>
      <div className="dialog__inner">
        <h2 className="dialog__title">{words.toolChoice.title}</h2>
        <p>{tools?.length === 0 ? fill(words.toolChoice.none, { functions: <code>tools.functions</code>, servers: <code>tools.mcp</code> }) : words.toolChoice.lead}</p>
        {failed && (
          <p className="form-error" role="alert">
            {words.toolChoice.failed} <button type="button" className="text-button" onClick={load}>{words.common.tryAgain}</button>
          </p>
        )}
        {byServer(tools ?? []).map(([server, group]) => (
          <fieldset key={server ?? ""} className="tool-choice">
            <legend className="tool-choice__server">{server === undefined ? words.toolChoice.functions : visible(server)}</legend>
            {server !== undefined && group.length > 1 && (
              <label className="tool-choice__tool">
                <input
                  type="checkbox"
                  checked={group.every(isOn)}
                  ref={(box) => {
                    if (box) box.indeterminate = group.some(isOn) && !group.every(isOn)
                  }}
                  onChange={(event) => change(group.map(({ name }) => name), event.target.checked)}
                />
                <span className="tool-choice__words">{words.toolChoice.allOf(server)}</span>
              </label>
            )}
            {group.map((tool) => (
              <label key={tool.name} className="tool-choice__tool" data-testid="tool-choice">
                <input type="checkbox" checked={isOn(tool)} onChange={(event) => change([tool.name], event.target.checked)} />
                <span className="tool-choice__words">
                  <span className="tool-choice__name">{visible(tool.name)}</span>
                  {tool.description !== undefined && <span className="tool-choice__note" dir="auto">{visible(tool.description.slice(0, 300))}</span>}
                </span>
              </label>
            ))}
          </fieldset>
        ))}
        <div className="dialog__actions">
          <button type="button" className="button button--first" data-testid="tools-done" onClick={onClose}>{words.toolChoice.done}</button>
        </div>
      </div>
    </Dialog>
  )
}
