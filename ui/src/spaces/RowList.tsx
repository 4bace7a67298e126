// A virtual list for thousands of rows: only groups near the visible area are rendered; the others keep their height.
// It follows its end while the reader is there.
import { memo, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react"
import type { ReactNode, RefObject } from "react"

import { StopFollowingContext, useFollowEnd } from "../chat/followEnd"
import { DownIcon } from "../primitives/icons"
import type { Row } from "./rows"
import { words } from "../words"

const GROUP_SIZE = 24
/** The margin around the visible area in which rows are rendered. */
const RENDER_MARGIN = "900px 0px"
const ESTIMATED_ROW_HEIGHT = 52

export interface Target {
  key: string
  /** A new number scrolls to the row again. */
  turn: number
}

interface Props {
  rows: readonly Row[]
  label: string
  target: Target | null
  draw: (row: Row) => ReactNode
  /** Content before the first row. */
  before?: ReactNode
  /** Shown if there are no rows. */
  empty?: ReactNode
}

export function RowList({ rows, label, target, draw, before, empty }: Props) {
  const { box, inner, atEnd, toEnd, stopFollowing } = useFollowEnd()
  const watch = useNearViewport(box)
  const groups = useMemo(() => {
    const made: Row[][] = []
    for (let from = 0; from < rows.length; from += GROUP_SIZE) made.push(rows.slice(from, from + GROUP_SIZE))
    return made
  }, [rows])

  const targetIndex = target === null ? -1 : rows.findIndex((row) => row.key === target.key)
  const lastTurn = useRef(0)
  const turn = target?.turn ?? 0
  useLayoutEffect(() => {
    if (targetIndex < 0 || lastTurn.current === turn) return
    const row = box.current?.querySelector<HTMLElement>(`[data-row="${CSS.escape(target?.key ?? "")}"]`)
    if (!row) return
    lastTurn.current = turn
    stopFollowing()
    row.scrollIntoView({ block: "center", inline: "nearest" })
    row.focus({ preventScroll: true })
    row.classList.remove("row--target")
    // Forces a reflow, so that the animation starts again on the same row.
    void row.offsetWidth
    row.classList.add("row--target")
  }, [targetIndex, turn, target?.key, box, stopFollowing])

  return (
    <StopFollowingContext value={stopFollowing}>
      <div className="rows">
        <div className="rows__scroll" ref={box} data-scroller tabIndex={0} role="region" aria-label={label}>
          <div className="rows__inner" ref={inner}>
            {before}
            {rows.length === 0 ? empty : (
              <div role="list" aria-label={label}>
                {groups.map((group, index) => (
                  <Group key={index} rows={group} draw={draw} watch={watch} first={index >= groups.length - 3} forced={targetIndex >= 0 && Math.floor(targetIndex / GROUP_SIZE) === index} />
                ))}
              </div>
            )}
          </div>
        </div>
        {!atEnd && (
          <button type="button" className="jump-down rows__down" aria-label={words.common.toEnd} title={words.common.toEnd} onClick={toEnd}>
            <DownIcon />
          </button>
        )}
      </div>
    </StopFollowingContext>
  )
}

type Watch = (element: Element, onChange: (near: boolean, height: number) => void) => () => void

function useNearViewport(box: RefObject<HTMLElement | null>): Watch {
  const [near] = useState(() => {
    const callbacks = new Map<Element, (near: boolean, height: number) => void>()
    let observer: IntersectionObserver | null = null
    const watch: Watch = (element, onChange) => {
      if (typeof IntersectionObserver === "undefined") {
        onChange(true, 0)
        return () => undefined
      }
      observer ??= new IntersectionObserver(
        (entries) => {
          for (const entry of entries) callbacks.get(entry.target)?.(entry.isIntersecting, entry.boundingClientRect.height)
        },
        { root: box.current, rootMargin: RENDER_MARGIN },
      )
      callbacks.set(element, onChange)
      observer.observe(element)
      return () => {
        callbacks.delete(element)
        observer?.unobserve(element)
      }
    }
    return watch
  })
  return near
}

interface GroupProps {
  rows: readonly Row[]
  draw: (row: Row) => ReactNode
  watch: Watch
  /** Rendered before its position is known. */
  first: boolean
  forced: boolean
}

const same = (a: readonly Row[], b: readonly Row[]) =>
  a.length === b.length &&
  a.every((row, index) => {
    const other = b[index] as Row
    if (row.key !== other.key || row.rev !== other.rev || row.depth !== other.depth || row.type !== other.type) return false
    return row.type === "head" ? row.open === (other as typeof row).open && row.context === (other as typeof row).context : row.item === (other as typeof row).item
  })

const Group = memo(
  function Group({ rows, draw, watch, first, forced }: GroupProps) {
    const element = useRef<HTMLDivElement>(null)
    const [near, setNear] = useState(first)
    const height = useRef(rows.length * ESTIMATED_ROW_HEIGHT)
    useEffect(() => {
      const group = element.current
      if (!group) return
      return watch(group, (isNear, tall) => {
        // A group that has the focus stays rendered.
        if (!isNear && group.contains(document.activeElement)) return
        if (!isNear && tall > 0) height.current = tall
        setNear(isNear)
      })
    }, [watch])
    const drawn = near || forced
    return (
      <div ref={element} role="none" className="rows__group" style={drawn ? undefined : { blockSize: `${height.current}px` }}>
        {drawn && rows.map((row) => (
          <div key={row.key} role="listitem" aria-level={row.depth + 1} tabIndex={-1} className={`row row--${row.type}`} data-row={row.key} data-depth={row.depth} style={{ "--depth": row.depth } as object}>
            {draw(row)}
          </div>
        ))}
      </div>
    )
  },
  (a, b) => same(a.rows, b.rows) && a.draw === b.draw && a.first === b.first && a.forced === b.forced,
)
