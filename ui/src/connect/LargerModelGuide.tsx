// What a larger embedded model needs, and the commands that fetch and use it.
import { CopyButton } from "../text/CopyButton"
import { fill } from "../text/fill"
import { plain } from "../text/visible"
import { WebLink } from "../text/WebLink"
import { words } from "../words"
import { sizeOf } from "./about"
import type { LargerModel } from "./api"

export function LargerModelGuide({ model, onBack }: { model: LargerModel; onBack: () => void }) {
  const texts = words.connect
  const size = model.cached ? texts.fetched : texts.download(sizeOf(model.bytes))
  const start = model.install !== undefined ? texts.startAfterInstall : model.cached ? texts.startFetched : texts.start
  return (
    <div className="connect__form" data-testid="larger-guide">
      <p>{plain(model.note)}</p>
      <p className="connect__note">
        {[size, model.memory_bytes > 0 && texts.memory(sizeOf(model.memory_bytes))].filter(Boolean).join(" · ")}
        {model.licence && <> · {fill(texts.licence, { licence: <WebLink href={model.licence_url}>{plain(model.licence)}</WebLink> })}</>}
      </p>
      {model.install !== undefined && <Command text={texts.install} command={model.install} />}
      <Command text={start} command={model.command} />
      <div className="dialog__actions">
        <button type="button" className="button" onClick={onBack}>{texts.back}</button>
      </div>
    </div>
  )
}

function Command({ text, command }: { text: string; command: string }) {
  return (
    <div className="connect__command">
      <p>{text}</p>
      <pre className="connect__code" dir="ltr" tabIndex={0}><code>{command}</code></pre>
      <CopyButton text={command} label={words.connect.copyCommand(command)} />
    </div>
  )
}
