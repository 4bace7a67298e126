// A page for any AG-UI agent: live reasoning, the answer, tools, and approvals of calls.
import { HttpAgent } from '@ag-ui/client';

const agent = new HttpAgent({ url: 'agent/' });
const thread = document.querySelector('#thread');
const form = document.querySelector('form');
const stop = document.querySelector('#stop');

// --- the thread: one element for each message and call, by its id -----------------------------------------------------

const shown = new Map();

function element(id, kind, make = () => document.createElement('p')) {
  if (!shown.has(id)) {
    const made = make();
    made.classList.add(kind);
    shown.set(id, made);
    thread.append(made);
  }
  return shown.get(id);
}

function show(id, kind, text) {
  element(id, kind).textContent = text;
  thread.scrollTop = thread.scrollHeight;
}

// Reasoning is open while it streams, and folds at its end; the user can open it again.
function thought(id) {
  return element(id, 'reasoning', () => {
    const details = document.createElement('details');
    details.open = true;
    details.append(document.createElement('summary'), document.createElement('div'));
    details.firstChild.textContent = 'Thinking…';
    details.dataset.since = Date.now();
    return details;
  });
}

const subscriber = {
  onReasoningMessageStartEvent: ({ event }) => void thought(event.messageId),
  onReasoningMessageContentEvent: ({ event, reasoningMessageBuffer }) => {
    thought(event.messageId).lastChild.textContent = reasoningMessageBuffer + event.delta;
    thread.scrollTop = thread.scrollHeight;
  },
  onReasoningMessageEndEvent: ({ event, reasoningMessageBuffer }) => {
    const details = thought(event.messageId);
    const seconds = Math.round((Date.now() - details.dataset.since) / 1000);
    // A message without text carries sealed reasoning, which is sent back with the next question.
    details.firstChild.textContent = reasoningMessageBuffer ? `Thought for ${seconds} s` : 'Thought (sealed)';
    details.open = false;
  },
  onTextMessageContentEvent: ({ event, textMessageBuffer }) => show(event.messageId, 'assistant', textMessageBuffer + event.delta),
  onToolCallEndEvent: ({ event, toolCallName, toolCallArgs }) => show(event.toolCallId, 'tool', `${toolCallName}(${JSON.stringify(toolCallArgs)})`),
  onToolCallResultEvent: ({ event }) => {
    const called = element(event.toolCallId, 'tool');
    called.textContent += ` → ${event.content}`;
  },
  onStepStartedEvent: ({ event }) => show(`step ${event.stepName}`, 'tool', `${event.stepName} …`),
  onStepFinishedEvent: ({ event }) => {
    shown.get(`step ${event.stepName}`)?.remove();
    shown.delete(`step ${event.stepName}`);
  },
  onRunErrorEvent: ({ event }) => show(crypto.randomUUID(), 'error', event.message),
};

// --- runs -------------------------------------------------------------------------------------------------------------

async function run(parameters = {}) {
  stop.hidden = false;
  try {
    await agent.runAgent(parameters, subscriber);
  } catch (error) {
    show(crypto.randomUUID(), 'error', error.message);
  }
  stop.hidden = true;
  const answers = await Promise.all((agent.pendingInterrupts ?? []).map(decide));
  if (answers.length) await run({ resume: answers });
}

// Show an interrupt, and return the user's decision.
function decide(interrupt) {
  const question = document.createElement('div');
  question.className = 'ask';
  question.append(Object.assign(document.createElement('span'), { textContent: interrupt.message ?? interrupt.reason }));
  thread.append(question);
  return new Promise((resolve) => {
    for (const [approved, label] of [[true, 'Allow'], [false, 'Deny']]) {
      const button = Object.assign(document.createElement('button'), { textContent: label });
      button.onclick = () => {
        question.remove();
        resolve({ interruptId: interrupt.id, status: 'resolved', payload: { approved } });
      };
      question.append(button);
    }
    thread.scrollTop = thread.scrollHeight;
  });
}

form.onsubmit = (event) => {
  event.preventDefault();
  const message = { id: crypto.randomUUID(), role: 'user', content: form.question.value };
  form.reset();
  agent.addMessage(message);
  show(message.id, 'user', message.content);
  void run();
};

stop.onclick = () => agent.abortRun();
