// Menus for the model, the effort and the view. The effective view is always visible.
import * as Menu from "@radix-ui/react-dropdown-menu"
import { useRef } from "react"
import type { ReactNode } from "react"

import type { Effort, View } from "../api/types"
import { chosenModel } from "../compose/choices"
import { modelNote } from "../connect/about"
import { plain } from "../text/visible"
import { CheckIcon, DownIcon, PlusIcon } from "../primitives/icons"
import type { PickersProps } from "./props"
import { EFFORTS, effectiveView, optionOf, VIEWS } from "../primitives/views"
import { words } from "../words"

interface Choice {
  value: string
  name: string
  note?: string
  disabled?: boolean
}

interface PickProps {
  testId: string
  label: string
  heading: string
  value: string
  choices: readonly Choice[]
  className?: string
  onPick: (value: string) => void
  onChosen: () => boolean
  /** An action below the choices. */
  action?: ReactNode
  /** What is true of all choices. */
  remark?: string | undefined
  children: ReactNode
}

function Pick({ testId, label, heading, value, choices, className = "pick", onPick, onChosen, action, remark, children }: PickProps) {
  const chosen = useRef(false)
  return (
    <Menu.Root modal={false}>
      <Menu.Trigger className={className} data-testid={testId} data-value={value} aria-label={label}>
        <span className="pick__value">{children}</span>
        <DownIcon />
      </Menu.Trigger>
      <Menu.Portal>
        <Menu.Content
          className="menu"
          align="start"
          side="top"
          sideOffset={6}
          collisionPadding={8}
          loop
          onCloseAutoFocus={(event) => {
            if (chosen.current && onChosen()) event.preventDefault()
            chosen.current = false
          }}
        >
          <Menu.Label className="menu__label">{heading}</Menu.Label>
          <Menu.RadioGroup value={value} onValueChange={onPick}>
            {choices.map((choice) => (
              <Menu.RadioItem key={choice.value} className="menu__item menu__item--radio" value={choice.value} disabled={choice.disabled ?? false} textValue={choice.name} onSelect={() => (chosen.current = true)}>
                <span className="menu__check">
                  <Menu.ItemIndicator><CheckIcon /></Menu.ItemIndicator>
                </span>
                <span className="menu__name">{choice.name}</span>
                {choice.note && <span className="menu__note">{choice.note}</span>}
              </Menu.RadioItem>
            ))}
          </Menu.RadioGroup>
          {remark !== undefined && <p className="menu__remark">{remark}</p>}
          {action}
        </Menu.Content>
      </Menu.Portal>
    </Menu.Root>
  )
}

export function Pickers({ models, views, model, effort, view, onModel, onEffort, onView, onChosen, onDefault, defaultRemark, onConnect }: PickersProps) {
  const chosen = chosenModel(models, model)
  if (!chosen) return onConnect ? <button type="button" className="pick" onClick={onConnect}>{words.modelNotes.connect}</button> : null
  const effective = effectiveView(view, chosen.view, views)
  const effectiveName = optionOf(VIEWS, effective)?.name
  const efforts = EFFORTS.filter(({ value }) => chosen.efforts.includes(value))
  return (
    <>
      <Pick
        testId="model-picker"
        label={words.pickers.modelLabel(plain(chosen.id))}
        heading={words.pickers.model}
        value={chosen.id}
        choices={models.map((one) => ({ value: one.id, name: plain(one.id), note: modelNote(one) }))}
        className="pick pick--model"
        onPick={onModel}
        onChosen={onChosen}
        remark={defaultRemark}
        action={onConnect && (
          <>
            <Menu.Separator className="menu__line" />
            {onDefault && !chosen.default && (
              <Menu.Item className="menu__item menu__item--radio" data-testid="make-default" onSelect={() => onDefault(chosen.id)}>
                <span className="menu__check" />
                {words.pickers.makeDefault(plain(chosen.id))}
              </Menu.Item>
            )}
            <Menu.Item className="menu__item menu__item--radio" data-testid="connect-menu" onSelect={onConnect}>
              <span className="menu__check"><PlusIcon /></span>
              {words.modelNotes.connect}
            </Menu.Item>
          </>
        )}
      >
        {plain(chosen.id)}
      </Pick>
      {efforts.length > 0 && (
        <Pick
          testId="effort-picker"
          label={words.pickers.effortLabel(effort ?? words.pickers.effortDefault)}
          heading={words.pickers.effortHeading}
          value={effort ?? ""}
          choices={[{ value: "", name: words.pickers.defaultEffort, note: words.pickers.defaultEffortNote }, ...efforts]}
          remark={chosen.efforts_unknown ? words.pickers.unknownEfforts : undefined}
          onPick={(value) => onEffort(value === "" ? undefined : (value as Effort))}
          onChosen={onChosen}
        >
          {effort ? <span><span className="pick__lead">{words.pickers.effortLead}</span>{optionOf(EFFORTS, effort)?.name}</span> : words.pickers.effort}
        </Pick>
      )}
      <Pick
        testId="view-badge"
        label={words.pickers.viewLabel(effectiveName ?? effective)}
        heading={words.pickers.viewHeading}
        value={effective}
        choices={VIEWS.map(({ value, name, note }) => {
          const allowed = views.includes(value)
          return { value, name, note: allowed ? note : words.pickers.unavailable(note), disabled: !allowed }
        })}
        className={`pick pick--view pick--${effective}`}
        onPick={(value) => onView(value as View)}
        onChosen={onChosen}
      >
        <span className="view-dot" data-view={effective} />
        {effectiveName}
      </Pick>
    </>
  )
}
