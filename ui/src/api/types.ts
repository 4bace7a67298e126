// Types of the requests and responses of /api. Times are milliseconds since 1970.

export type View = "raw" | "summary" | "sealed" | "hidden"
export type Effort = "off" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max"
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json }

// --- the canonical event: sent in message_final and stored

export type Status = "in_progress" | "completed" | "incomplete" | "failed" | "cancelled"
export type ToolStatus = "completed" | "failed" | "incomplete"

export interface ReasoningPart {
  text: string
  type: "reasoning_text" | "summary_text"
  created_at: number
  is_complete: boolean
  summary_index: number
  sequence_number: number
}

/** That another model wrote the summaries of the reasoning. */
export interface SummaryNote {
  author: string
  /** Why there are none, or not all. */
  missing?: "late" | "failed"
}

export interface ReasoningSegment {
  id: string
  type: "reasoning"
  parts: ReasoningPart[]
  streaming: false
  output_index: number
  combined_text: string
  sequence_number: number
  effort_level?: string
  reasoning_tokens?: number
  summary?: SummaryNote
}

export interface Citation {
  type: "url_citation"
  url: string
  title: string
  start_index?: number
  end_index?: number
}

export interface TextSegment {
  id: string
  type: "text"
  text: string
  annotations?: Citation[]
}

export interface ToolSegment {
  id: string
  type: "tool_call" | "web_search_call" | "code_interpreter_call" | "builtin_tool_call"
  call_id: string
  name: string
  args: Json
  /** The JSON text of the arguments, as the model wrote it. */
  args_text?: string
  status: ToolStatus
  result?: Json
  error?: string
  created_at: number
  sequence_number: number
  output_index: number
}

export interface RefusalSegment {
  id: string
  type: "refusal"
  text: string
}

export interface FileSegment {
  id: string
  type: "file"
  media_type: string
  data?: string
  url?: string
}

export type Segment = ReasoningSegment | TextSegment | ToolSegment | RefusalSegment | FileSegment

export interface Span {
  segment_id: string
  started_at: number
  ended_at: number
}

export interface TokenCounts {
  input_tokens?: number
  output_tokens?: number
  reasoning_tokens?: number
  cost?: number
  reasoning_cost?: number
}

export interface Answer {
  id: string
  conversation_id: string
  role: "assistant"
  model: string
  created_at: number
  status: Status
  segments: Segment[]
  completed_at?: number
  view?: View
  effort_level?: string
  usage?: TokenCounts
  deployment?: { name: string; failed: { name: string; cause: string }[] }
  error?: { message: string; code?: string }
  timeline?: Span[]
  feedback?: Feedback
}

export interface Feedback {
  rating: "up" | "down"
  comment?: string
}

export interface AttachmentInfo {
  id: string
  name: string
  media_type: string
  size: number
  url: string
}

export interface QuestionEvent {
  id: string
  conversation_id: string
  role: "user"
  created_at: number
  status: "completed"
  segments: TextSegment[]
  versions?: string[]
  attachments?: AttachmentInfo[]
}

export type ChatEvent = QuestionEvent | Answer

// --- the frames of POST /api/chat and GET /api/chat/{event_id}

export interface MessageStarted {
  type: "message_started"
  event_id: string
  conversation_id: string
  model: string
  created_at: number
  view: View
  effort_level?: string
}

interface PartReference {
  event_id: string
  segment_id: string
  summary_index: number
}

export interface ReasoningPartStarted extends PartReference {
  type: "reasoning_part_started"
  sequence_number: number
  created_at: number
}

export interface ReasoningPartDelta extends PartReference {
  type: "reasoning_part_delta"
  text_delta: string
}

export interface ReasoningPartCompleted extends PartReference {
  type: "reasoning_part_completed"
  is_complete: true
  final_text?: string
  completed_at?: number
}

export interface ReasoningSegmentMeta {
  type: "reasoning_segment_meta"
  event_id: string
  segment_id: string
  sequence_number?: number
  output_index?: number
  created_at?: number
  effort_level?: string
  reasoning_tokens?: number
  form?: "raw" | "summary" | "sealed"
  /** When the reasoning ended, if summaries of it may still come. */
  completed_at?: number
  summary?: SummaryNote
}

export interface TextDelta {
  type: "text_delta"
  event_id: string
  text_delta: string
  output_index: number
}

export interface ToolStarted {
  type: "tool_call_started" | "web_search_call_started" | "code_interpreter_call_started"
  event_id: string
  call_id: string
  name: string
  args_preview: string
  sequence_number: number
  created_at: number
}

export interface ToolUpdate {
  type: "tool_call_update" | "web_search_call_update" | "code_interpreter_call_update"
  event_id: string
  call_id: string
  status: string
  progress: number | null
  logs_delta?: string
  args_preview?: string
}

export interface ToolResult {
  type: "tool_result" | "web_search_call_result" | "code_interpreter_call_result"
  event_id: string
  call_id: string
  result: Json
  error?: string
  completed_at?: number
}

export interface MessageError {
  type: "message_error"
  event_id: string
  message: string
}

export interface MessageCancelled {
  type: "message_cancelled"
  event_id: string
}

export interface MessageFinal {
  type: "message_final"
  event: Answer
}

export type StreamEvent =
  | MessageStarted
  | ReasoningPartStarted
  | ReasoningPartDelta
  | ReasoningPartCompleted
  | ReasoningSegmentMeta
  | TextDelta
  | ToolStarted
  | ToolUpdate
  | ToolResult
  | MessageError
  | MessageCancelled
  | MessageFinal

// --- requests and the rest of /api

/** A new attachment with its content in base64, or an earlier one by its id. */
export interface AttachmentInput {
  name?: string
  media_type?: string
  data?: string
  id?: string
}

export interface AskBody {
  text: string
  attachments?: AttachmentInput[]
  conversation_id?: string
  model?: string
  effort?: Effort
  view?: View
  replaces?: string
  follows?: string
  instructions?: string
  tools?: string[]
}

export interface ConversationInfo {
  id: string
  title: string
  created_at: number
  updated_at: number
  snippet?: string
  /** In a list: the answer that is in progress. */
  active?: string
  instructions?: string
}

export interface ConversationPage {
  data: ConversationInfo[]
  has_more: boolean
  last_id: string | null
}

export interface OpenConversation {
  conversation: ConversationInfo
  events: ChatEvent[]
  active: string | null
}

export interface Session {
  signed_in: boolean
  needed: boolean
  ways: ("key" | "oidc")[]
  name?: string
  /** A mark of the owner, for what the page keeps in the browser. */
  owner?: string
  /** Whether this user may create spaces. */
  create_spaces?: boolean
}

export interface ModelInfo {
  id: string
  efforts: Effort[]
  /** It is not known which of them the model has. */
  efforts_unknown?: boolean
  view: View
  default?: boolean
  embedded?: boolean
  /** The embedded model is still loading. */
  loading?: boolean
  /** What it takes in addition to text; absent: not known. */
  accepts?: ("image" | "pdf")[]
  /** It is an agent, with tools of its own. */
  agent?: boolean
  /** The full name and the size of the embedded model. */
  title?: string
  bytes?: number
  /** A larger model that could be the embedded one. */
  larger?: { title: string; bytes: number }
  /** The provider of another model, by its title. */
  provider?: string
  context_tokens?: number
}

export interface AttachmentLimits {
  max_files: number
  max_file_bytes: number
  max_total_bytes: number
  media_types: string[]
}

export interface Models {
  data: ModelInfo[]
  views: View[]
  attachments: AttachmentLimits
  max_instructions_chars: number
  /** Whether this user may connect models. */
  connect?: boolean
  /** The configuration names the default model, so this user cannot choose it. */
  default_configured?: boolean
  currency?: string
}

export interface ServerTool {
  name: string
  description?: string
  server?: string
}

/** A link that shares a chat. */
export interface Share {
  id: string
  /** The path of the link; known only when it was made. */
  url?: string
  head: string
  view: View
  created_at: number
  expires_at?: number
}

export interface SharedChat {
  title: string
  view: View
  created_at: number
  events: ChatEvent[]
}
