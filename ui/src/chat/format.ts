// Formatting: durations, counts, values of tools, segments.
import type { Answer, Json, ReasoningSegment, Segment, TextSegment, ToolSegment, ToolStatus } from "../api/types"
import { createContext } from "react"
import { formatCurrency } from "../formats"
import { words } from "../words"

export type Step = ReasoningSegment | ToolSegment
export type Content = Exclude<Segment, Step>

export const isTool = (segment: Segment): segment is ToolSegment =>
  segment.type === "tool_call" ||
  segment.type === "web_search_call" ||
  segment.type === "code_interpreter_call" ||
  segment.type === "builtin_tool_call"

const isStep = (segment: Segment): segment is Step => segment.type === "reasoning" || isTool(segment)

/** The reasoning and tool segments, in the order in which the model began them. */
export function stepsOf(event: Answer): Step[] {
  return event.segments.filter(isStep).toSorted((a, b) => a.sequence_number - b.sequence_number)
}

export const contentOf = (event: Answer): Content[] =>
  event.segments.filter((segment): segment is Content => !isStep(segment) && (segment.type !== "text" || segment.text !== ""))

/** The answer as Markdown. */
export const answerText = (event: { segments: Segment[] }): string =>
  event.segments
    .filter((segment): segment is TextSegment => segment.type === "text" && segment.text !== "")
    .map((segment) => segment.text)
    .join("\n\n")

/** A duration in whole seconds, rounded down: one that counts up shows the same at its end. */
export function formatDuration(ms: number): string {
  const seconds = Math.floor(ms / 1000)
  if (seconds < 1) return words.time.underSecond
  if (seconds < 60) return words.time.seconds(seconds)
  const minutes = Math.floor(seconds / 60)
  return minutes < 60 ? words.time.minutes(minutes, seconds % 60) : words.time.hours(Math.floor(minutes / 60), minutes % 60)
}

export const formatTokens = words.reasoning.tokens

/** The time spent on reasoning in milliseconds, or null if it is unknown. */
export function reasoningTime(event: Answer): number | null {
  const reasoning = new Set(event.segments.filter((segment) => segment.type === "reasoning").map((segment) => segment.id))
  const spans = (event.timeline ?? []).filter((span) => reasoning.has(span.segment_id))
  if (spans.length === 0) return null
  return spans.reduce((sum, span) => sum + Math.max(0, span.ended_at - span.started_at), 0)
}

export function reasoningTokens(event: Answer): number | null {
  const counts = event.segments.filter((segment) => segment.type === "reasoning").map((segment) => segment.reasoning_tokens)
  const sum = counts.reduce<number>((all, count) => all + (count ?? 0), 0)
  return event.usage?.reasoning_tokens ?? (sum > 0 ? sum : null)
}

export const effortOf = (event: Answer): string | undefined =>
  event.effort_level ?? event.segments.find((segment) => segment.type === "reasoning")?.effort_level

/** The time of a tool in milliseconds, or null if it is unknown. */
export function toolTime(event: Answer, segment: ToolSegment): number | null {
  const span = event.timeline?.find((one) => one.segment_id === segment.id)
  return span ? Math.max(0, span.ended_at - span.started_at) : null
}

/** The currency of the gateway's prices; undefined until it is known. */
export const CurrencyContext = createContext<string | undefined>(undefined)

/** An amount of money with two significant digits, and at least two after the point. */
export function formatMoney(amount: number, currency: string): string {
  const digits = amount <= 0 ? 2 : Math.min(9, Math.max(2, 1 - Math.floor(Math.log10(amount))))
  return formatCurrency(amount, currency, digits)
}

/** What the whole answer took, its reasoning included: money, tokens. */
export function usageOf({ usage }: Answer, currency: string | undefined): string[] {
  const { cost, input_tokens: read, output_tokens: written } = usage ?? {}
  return [
    cost === undefined || currency === undefined ? "" : words.answer.cost(formatMoney(cost, currency)),
    read === undefined || written === undefined ? "" : words.answer.tokens(read, written),
  ].filter((word) => word !== "")
}

/** A tool's result as readable text. */
export function formatJson(value: Json | undefined): string {
  if (value === undefined || value === null) return ""
  return typeof value === "string" ? value : JSON.stringify(value, null, 2)
}

/** The beginning of a value on one line. */
export function preview(value: Json | undefined): string {
  if (value === undefined || value === null) return ""
  const text = typeof value === "string" ? value : JSON.stringify(value)
  return text.slice(0, 200).replace(/\s+/g, " ").trim()
}

/** The label of a tool's status; a status that is specific to a provider is shown unchanged. */
export const toolStatus = (status: string) => words.tools.statuses[status] ?? status

const ENDS: ReadonlySet<string> = new Set<ToolStatus>(["completed", "failed", "incomplete"])
export const toolIsOver = (status: string) => ENDS.has(status)
