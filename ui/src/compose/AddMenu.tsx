// The menu of what a question can get: files, instructions, tools; and the list of shortcuts.
import * as Menu from "@radix-ui/react-dropdown-menu"
import { useRef } from "react"

import type { ModelInfo } from "../api/types"
import { PlusIcon } from "../primitives/icons"
import { plain } from "../text/visible"
import { words } from "../words"

interface Props {
  model: ModelInfo | undefined
  /** Number of tools that are switched off. */
  toolsOff: number
  onAttach: () => void
  onOpen: (dialog: "instructions" | "tools" | "help") => void
}

function attachNote(model: ModelInfo | undefined): string {
  if (!model?.accepts) return words.addMenu.filesNote
  const [image, pdf] = [model.accepts.includes("image"), model.accepts.includes("pdf")]
  if (image && pdf) return words.addMenu.filesNote
  const name = plain(model.id)
  return image ? words.addMenu.noPdf(name) : pdf ? words.addMenu.noImages(name) : words.addMenu.textOnly(name)
}

export function AddMenu({ model, toolsOff, onAttach, onOpen }: Props) {
  // What opens something takes the focus itself, after the menu has closed.
  const chosen = useRef<(() => void) | null>(null)
  const item = (testId: string, name: string, note: string, onSelect: () => void, disabled = false) => (
    <Menu.Item className="menu__item menu__item--noted" data-testid={testId} disabled={disabled} onSelect={() => (chosen.current = onSelect)}>
      <span className="menu__name">{name}</span>
      {note && <span className="menu__note">{note}</span>}
    </Menu.Item>
  )
  return (
    <Menu.Root modal={false}>
      <Menu.Trigger className="pick pick--add" data-testid="add" aria-label={words.compose.add} title={words.compose.add}>
        <PlusIcon />
      </Menu.Trigger>
      <Menu.Portal>
        <Menu.Content
          className="menu"
          align="start"
          side="top"
          sideOffset={6}
          collisionPadding={8}
          loop
          onCloseAutoFocus={() => {
            const open = chosen.current
            chosen.current = null
            // A dialog gives the focus back to the menu's button.
            if (open) queueMicrotask(open)
          }}
        >
          <Menu.Label className="menu__label">{words.addMenu.heading}</Menu.Label>
          {item("add-files", words.addMenu.files, attachNote(model), onAttach)}
          {item("add-instructions", words.addMenu.instructions, words.addMenu.instructionsNote, () => onOpen("instructions"))}
          {item(
            "add-tools",
            words.addMenu.tools,
            model?.agent ? words.addMenu.toolsAgent : toolsOff > 0 ? words.addMenu.toolsOff(toolsOff) : words.addMenu.toolsNote,
            () => onOpen("tools"),
            model?.agent ?? false,
          )}
          {item("add-help", words.addMenu.shortcuts, "", () => onOpen("help"))}
        </Menu.Content>
      </Menu.Portal>
    </Menu.Root>
  )
}
