// The dialog that says how a model takes part in a space: as a participant with a token, run by a few lines of Python.
import "../styles/compose/dialogs.css"
import { Dialog } from "../primitives/Dialog"
import { CopyButton } from "../text/CopyButton"
import { words } from "../words"
import { commandFor, programFor } from "./modelProgram"

export function ModelGuide({ space, onClose }: { space: string; onClose: () => void }) {
  const texts = words.spaces.guide
  return (
    <Dialog className="dialog dialog--wide" label={texts.title} onClose={onClose}>
      <div className="dialog__inner" data-testid="guide">
        <h2 className="dialog__title">{texts.title}</h2>
        <p>{texts.lead}</p>
        <Step text={texts.token} code={commandFor(space)} />
        <Step text={texts.program} code={programFor(space)} />
        <p>{texts.after}</p>
        <div className="dialog__actions">
          <button type="button" className="button" onClick={onClose}>{texts.close}</button>
        </div>
      </div>
    </Dialog>
  )
}

function Step({ text, code }: { text: string; code: string }) {
  return (
    <section className="guide__step">
      <p>{text}</p>
      <pre className="guide__code" dir="ltr" tabIndex={0}><code>{code}</code></pre>
      <CopyButton text={code} label={words.text.copyCode} />
    </section>
  )
}
