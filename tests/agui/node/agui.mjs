// The official clients, over sequences of events or over a server. `node agui.mjs FUNCTION`, with what it needs as JSON
// on stdin; what it gives is the last line of stdout.
import { createServer } from 'node:http';

const PACKAGES = { '1.0.0': '@ag-ui/client', '0.0.58': '@ag-ui/client-0.0.58', '0.0.45': '@ag-ui/client-0.0.45', '0.0.39': '@ag-ui/client-0.0.39' };

const heard = { warnings: [], errors: [] };
console.warn = (...said) => heard.warnings.push(said.map(String).join(' '));
console.error = (...said) => heard.errors.push(said.map(String).join(' '));

// What one run of an agent comes to. `abort`: it is aborted at the first event of this type.
async function attempt(agent, parameters, abort) {
  heard.warnings.length = 0;
  let error = null;
  let failed = null;
  const events = [];
  const subscriber = {
    onEvent: ({ event }) => {
      events.push(event.type);
      if (event.type === abort) agent.abortRun();
    },
    onRunErrorEvent: ({ event }) => void (failed = event.message),
  };
  try {
    await agent.runAgent(parameters, subscriber);
  } catch (thrown) {
    error = String(thrown?.message ?? thrown);
  }
  return { accepted: error === null, error, failed, events, warnings: [...heard.warnings], messages: structuredClone(agent.messages), interrupts: agent.pendingInterrupts ?? [] };
}

const framed = (events) => events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('');

// Each sequence is a list of events, or { body, type }: base64, and what the server says it is.
async function play({ client, sequences, messages = [] }) {
  const { HttpAgent } = await import(PACKAGES[client]);
  const server = createServer((request, response) => {
    const sequence = sequences[Number(request.url.slice(1))];
    const raw = !Array.isArray(sequence);
    request.resume();
    response.writeHead(200, { 'Content-Type': raw ? sequence.type : 'text/event-stream' });
    response.end(raw ? Buffer.from(sequence.body, 'base64') : framed(sequence));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const base = `http://127.0.0.1:${server.address().port}`;
  const gave = [];
  for (const index of sequences.keys()) {
    const agent = new HttpAgent({ url: `${base}/${index}`, threadId: 't', initialMessages: structuredClone(messages) });
    gave.push(await attempt(agent, { runId: 'r' }));
  }
  server.close();
  server.closeAllConnections();
  return gave;
}

// One agent, and what it is asked one after the other: each turn's messages are added to those that it has.
async function talk({ client, url, turns, headers = {}, threadId = 't' }) {
  const { HttpAgent } = await import(PACKAGES[client]);
  const agent = new HttpAgent({ url, headers, threadId });
  const gave = [];
  for (const { messages = [], ...parameters } of turns) {
    for (const message of messages) agent.messages.push(message);
    gave.push(await attempt(agent, parameters));
  }
  return gave;
}

// Many conversations, each with an agent of its own: what its turns came to. A turn may have `answers` (what to say to
// calls without a result, by their function), `settle` (how pending interrupts are answered), `forget` (a role whose
// messages the application drops first) and `abort`.
async function converse({ conversations }) {
  const gave = [];
  for (const { client, url, turns, headers = {}, threadId, messages = [] } of conversations) {
    const { HttpAgent } = await import(PACKAGES[client]);
    const agent = new HttpAgent({ url, headers, threadId, initialMessages: messages });
    const said = [];
    for (const { messages = [], answers, settle, forget, abort, ...parameters } of turns) {
      if (forget) agent.messages = agent.messages.filter((message) => message.role !== forget);
      if (answers) agent.messages.push(...results(agent.messages, answers));
      if (settle) parameters.resume = (agent.pendingInterrupts ?? []).map(({ id }) => ({ interruptId: id, ...settle }));
      for (const message of messages) agent.messages.push(message);
      said.push(await attempt(agent, parameters, abort));
    }
    gave.push(said);
  }
  return gave;
}

function results(messages, answers) {
  const known = new Set(messages.map((message) => message.toolCallId));
  const calls = messages.flatMap((message) => message.toolCalls ?? []).filter(({ id }) => !known.has(id));
  return calls.map(({ id, function: { name } }) => ({ id: `of-${id}`, role: 'tool', toolCallId: id, content: answers[name] }));
}

// What the protobuf package makes of messages in base64.
async function decode({ messages }) {
  const { decode } = await import('@ag-ui/proto');
  return messages.map((message) => {
    try {
      return { event: decode(new Uint8Array(Buffer.from(message, 'base64'))) };
    } catch (thrown) {
      return { error: String(thrown?.message ?? thrown) };
    }
  });
}

let given = '';
for await (const piece of process.stdin) given += piece;
const gave = await { play, talk, converse, decode }[process.argv[2]](JSON.parse(given));
process.stdout.write(`${JSON.stringify(gave)}\n`, () => process.exit(0));
