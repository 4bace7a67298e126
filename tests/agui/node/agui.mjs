// The official clients, reading sequences of events or talking to a server. `node agui.mjs FUNCTION` reads the arguments
// as JSON from stdin; the last line of stdout is the result.
import { createServer } from 'node:http';

const PACKAGES = { '1.0.0': '@ag-ui/client', '0.0.58': '@ag-ui/client-0.0.58', '0.0.45': '@ag-ui/client-0.0.45', '0.0.39': '@ag-ui/client-0.0.39' };

const logged = { warnings: [], errors: [] };
console.warn = (...args) => logged.warnings.push(args.map(String).join(' '));
console.error = (...args) => logged.errors.push(args.map(String).join(' '));

// Run the agent once and return the outcome. `abort`: abort it at the first event of this type.
async function attempt(agent, parameters, abort) {
  logged.warnings.length = 0;
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
  return { accepted: error === null, error, failed, events, warnings: [...logged.warnings], messages: structuredClone(agent.messages), interrupts: agent.pendingInterrupts ?? [] };
}

const framed = (events) => events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('');

// Each sequence is a list of events, or { body, type }: base64, and the Content-Type.
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
  const results = [];
  for (const index of sequences.keys()) {
    const agent = new HttpAgent({ url: `${base}/${index}`, threadId: 't', initialMessages: structuredClone(messages) });
    results.push(await attempt(agent, { runId: 'r' }));
  }
  server.close();
  server.closeAllConnections();
  return results;
}

// One agent, several turns: the messages of each turn are added to those that the agent has.
async function talk({ client, url, turns, headers = {}, threadId = 't' }) {
  const { HttpAgent } = await import(PACKAGES[client]);
  const agent = new HttpAgent({ url, headers, threadId });
  const results = [];
  for (const { messages = [], ...parameters } of turns) {
    for (const message of messages) agent.messages.push(message);
    results.push(await attempt(agent, parameters));
  }
  return results;
}

// Many conversations, each with its own agent; return the outcomes of the turns. A turn may have `answers` (results for
// calls without one, by function), `settle` (how pending interrupts are answered), `forget` (a role whose
// messages the application drops first) and `abort`.
async function converse({ conversations }) {
  const results = [];
  for (const { client, url, turns, headers = {}, threadId, messages = [] } of conversations) {
    const { HttpAgent } = await import(PACKAGES[client]);
    const agent = new HttpAgent({ url, headers, threadId, initialMessages: messages });
    const outcomes = [];
    for (const { messages = [], answers, settle, forget, abort, ...parameters } of turns) {
      if (forget) agent.messages = agent.messages.filter((message) => message.role !== forget);
      if (answers) agent.messages.push(...toolResults(agent.messages, answers));
      if (settle) parameters.resume = (agent.pendingInterrupts ?? []).map(({ id }) => ({ interruptId: id, ...settle }));
      for (const message of messages) agent.messages.push(message);
      outcomes.push(await attempt(agent, parameters, abort));
    }
    results.push(outcomes);
  }
  return results;
}

function toolResults(messages, answers) {
  const known = new Set(messages.map((message) => message.toolCallId));
  const calls = messages.flatMap((message) => message.toolCalls ?? []).filter(({ id }) => !known.has(id));
  return calls.map(({ id, function: { name } }) => ({ id: `of-${id}`, role: 'tool', toolCallId: id, content: answers[name] }));
}

// Decode messages (base64) with the protobuf package.
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

let json = '';
for await (const piece of process.stdin) json += piece;
const result = await { play, talk, converse, decode }[process.argv[2]](JSON.parse(json));
process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
