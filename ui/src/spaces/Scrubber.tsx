// The timeline of a space: drag it, step through it, play it, or return to the present.
import { useMemo } from "react"

import type { Envelope } from "./envelope"
import { PauseIcon, PlayIcon } from "./icons"
import { useRoom } from "./room"
import { seqAt, activityBars, SPEEDS } from "./playback"
import type { Position, Speed } from "./playback"
import { Timestamp, formatTime } from "./badges"
import { words } from "../words"

interface Props {
  scrub: Position
  head: number
  speed: Speed
  list: readonly Envelope[]
  /** The time of the current position, by the envelopes' timestamps. */
  now: number
  reading: boolean
  onGo: (seq: number) => void
  onPlay: () => void
  onPause: () => void
  onLive: () => void
  onSpeed: (speed: Speed) => void
}

const MAX_BARS = 120

export function Scrubber({ scrub, head, speed, list, now, reading, onGo, onPlay, onPause, onLive, onSpeed }: Props) {
  const at = Math.min(seqAt(scrub, head), Math.max(head, 1))
  const live = scrub.mode === "live"
  const playing = scrub.mode === "playing"
  return (
    <section className="scrubber" aria-label={words.spaces.history.label} data-testid="scrubber" data-mode={scrub.mode} aria-busy={reading}>
      <button type="button" className="icon-button" data-testid="play" aria-label={playing ? words.spaces.history.pause : words.spaces.history.playHistory} title={playing ? words.spaces.history.pause : words.spaces.history.play} disabled={head === 0} onClick={playing ? onPause : onPlay}>
        {playing ? <PauseIcon /> : <PlayIcon />}
      </button>
      <label className="scrubber__speed">
        <span className="visually-hidden">{words.spaces.history.speed}</span>
        <select className="select" data-testid="speed" value={speed} onChange={(event) => onSpeed(Number(event.target.value) as Speed)}>
          {SPEEDS.map((one) => <option key={one} value={one}>{one}×</option>)}
        </select>
      </label>
      <div className="scrubber__track">
        <ActivityBars list={list} head={head} length={list.length} />
        <input
          type="range"
          className="scrubber__range"
          data-testid="scrub"
          aria-label={words.spaces.history.position}
          aria-valuetext={[words.spaces.history.at(at, head), now > 0 ? formatTime(now) : "", live ? words.spaces.history.liveMark : ""].filter((one) => one !== "").join(", ")}
          min={1}
          max={Math.max(head, 1)}
          step={1}
          value={Math.max(at, 1)}
          disabled={head === 0}
          style={{ "--share": head > 1 ? (at - 1) / (head - 1) : 1 } as object}
          onChange={(event) => {
            const seq = Number(event.target.value)
            if (seq >= head) onLive()
            else onGo(seq)
          }}
        />
      </div>
      <span className="scrubber__position" data-testid="position">
        {live ? null : <Timestamp ts={now} />}
        <span className="scrubber__number">{at} / {head}</span>
      </span>
      <button type="button" className="live" data-testid="live" aria-pressed={live} onClick={onLive}>
        <span className="live__dot" aria-hidden="true" />{words.spaces.history.live}
      </button>
    </section>
  )
}

/** The activity over time. Rendered again only when the list has grown by a step, not with every envelope. */
function ActivityBars({ list, head, length }: { list: readonly Envelope[]; head: number; length: number }) {
  const { colourOf } = useRoom()
  const first = list[0]?.seq ?? 0
  const count = Math.min(MAX_BARS, Math.max(head, 12))
  const step = Math.max(1, Math.floor(head / MAX_BARS / 2))
  const roundedHead = Math.max(count, Math.ceil(head / step) * step)
  // eslint-disable-next-line react-hooks/exhaustive-deps -- the list grows in place
  const bars = useMemo(() => activityBars(list, roundedHead, count), [list, first, roundedHead, count, Math.floor(length / step)])
  return (
    <svg className="scrubber__bars" viewBox={`0 0 ${count} 20`} preserveAspectRatio="none" aria-hidden="true">
      {bars.map((bar, index) =>
        bar.who === null ? null : (
          <rect key={index} data-colour={colourOf(bar.who)} x={index + 0.12} width={0.76} y={19 - bar.height * 17} height={bar.height * 17 + 1} />
        ),
      )}
    </svg>
  )
}
