// The files of a question: images as thumbnails of a fixed size, others by their names.
import { FileIcon } from "../primitives/icons"
import { plain, visible } from "../text/visible"
import { words } from "../words"
import { isImage } from "./questionFile"
import type { ShownFile } from "./questionFile"

export function QuestionFiles({ files }: { files: readonly ShownFile[] }) {
  if (files.length === 0) return null
  return (
    <ul className="question__files" data-testid="question-files" aria-label={words.compose.files}>
      {files.map((file, index) => {
        const content = isImage(file) && file.url !== undefined ? (
          <img className="question__image" src={file.url} alt={plain(file.name)} />
        ) : (
          <span className="question__file">
            <FileIcon />
            <span className="question__file-name" dir="auto">{visible(file.name)}</span>
          </span>
        )
        return (
          <li key={file.id ?? index}>
            {file.id === undefined ? content : <a className="question__file-link" href={file.url} target="_blank" rel="noreferrer">{content}</a>}
          </li>
        )
      })}
    </ul>
  )
}
