// What a question with files needs, loaded with the first file: reading, checking, and the list of files.
import "../styles/compose/attached.css"
import { useId } from "react"

import type { AttachmentLimits, ModelInfo } from "../api/types"
import { CloseIcon, FileIcon } from "../primitives/icons"
import { plain, visible } from "../text/visible"
import { words } from "../words"
import { isImage, isReady, sizeText } from "./questionFile"
import type { QuestionFile } from "./questionFile"
import { modelProblem, totalProblem } from "./check"

export { readFile } from "./readFile"

/** Why the files cannot be sent, if so: for each, and for all together. */
export function problemsOf(files: readonly QuestionFile[], limits: AttachmentLimits | undefined, model: ModelInfo | undefined) {
  const name = plain(model?.id ?? "")
  const each = files.map((file) => file.problem ?? modelProblem(file, model, name))
  const total = limits && totalProblem(files, limits)
  return { each, total, any: total !== undefined || each.some((one) => one !== undefined) }
}

interface Props {
  files: readonly QuestionFile[]
  problems: ReturnType<typeof problemsOf>
  onRemove: (key: string) => void
}

export function AttachedFiles({ files, problems, onRemove }: Props) {
  const id = useId()
  const ready = files.filter((file, index) => isReady(file) && problems.each[index] === undefined).length
  return (
    <div className="attached" data-testid="attached">
      <ul className="attached__list" aria-label={words.compose.files}>
        {files.map((file, index) => {
          const problem = problems.each[index]
          return (
            <li key={file.key} className={problem === undefined ? "attached__file" : "attached__file attached__file--wrong"} data-testid="attached-file">
              {isImage(file) && file.url !== undefined ? <img className="attached__image" src={file.url} alt="" /> : <span className="attached__icon"><FileIcon /></span>}
              <span className="attached__words">
                <span className="attached__name" dir="auto" title={plain(file.name)}>{visible(file.name)}</span>
                {problem !== undefined ? (
                  <span className="attached__note" id={`${id}${index}`}>{problem}</span>
                ) : file.progress < 1 ? (
                  <progress className="attached__progress" value={file.progress} max={1} aria-label={words.attach.reading(plain(file.name))} />
                ) : (
                  <span className="attached__note" title={file.scaled && words.attach.pixels(file.scaled.width, file.scaled.height)}>{sizeText(file.size)}{file.scaled && ` · ${words.attach.scaled}`}</span>
                )}
              </span>
              <button
                type="button"
                className="icon-button attached__remove"
                data-testid="remove-file"
                aria-label={words.attach.remove(plain(file.name))}
                {...(problem !== undefined && { "aria-describedby": `${id}${index}` })}
                onClick={() => onRemove(file.key)}
              >
                <CloseIcon />
              </button>
            </li>
          )
        })}
      </ul>
      {problems.total !== undefined && <p className="attached__total">{problems.total}</p>}
      <span className="visually-hidden" role="status">
        {problems.each.find((one) => one !== undefined) ?? problems.total ?? (ready === files.length && words.attach.attached(ready))}
      </span>
    </div>
  )
}
