// The AI SDK before the gateway. Each function is one thing that an application does; what it gives is what it saw.
// node chats.mjs FUNCTION: what it is given comes on stdin; what it tells meanwhile, and what it gives, are lines.
import * as ai5 from 'ai5';
import * as ai6 from 'ai6';
import * as ai7 from 'ai';
import { Chat, useChat } from '@ai-sdk/react';

const VERSIONS = { 5: ai5, 6: ai6, 7: ai7 };
const say = (line) => console.log(JSON.stringify(line));
const told = (what) => say({ told: what });
const plain = (value) => JSON.parse(JSON.stringify(value));

// --- what the clients make of streams: their own schema checks each chunk, and their own reader adds them up

async function read(ai, bytes) {
  const transport = new ai.DefaultChatTransport({
    fetch: async () => new Response(bytes, { headers: { 'content-type': 'text/event-stream' } }),
  });
  const errors = [];
  const kinds = [];
  let message = null;
  try {
    const chunks = await transport.sendMessages({ chatId: 'c', messages: [], trigger: 'submit-message' });
    const seen = chunks.pipeThrough(
      new TransformStream({
        transform(chunk, controller) {
          kinds.push(chunk.type);
          controller.enqueue(chunk);
        },
      }),
    );
    const messages = ai.readUIMessageStream({ stream: seen, onError: (error) => errors.push(error.message) });
    for await (const state of messages) message = state;
  } catch (error) {
    errors.push(`thrown: ${error.message}`);
  }
  return { kinds, errors, message: message && plain(message) };
}

async function reads({ streams }) {
  const gave = {};
  for (const [version, ai] of Object.entries(VERSIONS)) {
    gave[version] = [];
    for (const stream of streams) gave[version].push(await read(ai, Uint8Array.from(Buffer.from(stream, 'base64'))));
  }
  return gave;
}

// --- a chat of @ai-sdk/react, with the transport that everybody uses

const until = async (holds) => {
  for (let left = 3000; !holds(); left--) {
    if (left === 0) throw new Error('it did not come to that');
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};

function chatOf({ url, headers, body, messages }) {
  const sent = [];
  const heads = [];
  const finishes = [];
  const transport = new ai7.DefaultChatTransport({
    api: url,
    headers,
    body,
    fetch: async (address, init) => {
      if (init.body) sent.push(JSON.parse(init.body));
      const response = await fetch(address, init);
      heads.push({ status: response.status, ...Object.fromEntries(response.headers) });
      return response;
    },
  });
  const errors = [];
  const chat = new Chat({
    transport,
    messages,
    onError: (error) => errors.push(error.message),
    onFinish: ({ finishReason, isAbort, isError, isDisconnect }) =>
      finishes.push({ finishReason, isAbort, isError, isDisconnect }),
  });
  return { chat, sent, heads, errors, finishes };
}

const what = ({ chat, sent, heads, errors, finishes }) => ({
  messages: plain(chat.messages),
  status: chat.status,
  sent,
  heads,
  errors,
  finishes,
});

// `turns`: words to send, or {regenerate: true}, or {stop: KIND}: to be stopped when a part of that kind has text.
async function chats({ turns, ...given }) {
  const talk = chatOf(given);
  for (const turn of turns) {
    if (turn.regenerate) await talk.chat.regenerate();
    else if (turn.resume) await talk.chat.resumeStream();
    else if (turn.resend) await talk.chat.sendMessage();
    else if (turn.stop) {
      const sending = talk.chat.sendMessage({ text: turn.text });
      const parts = () => talk.chat.lastMessage?.parts ?? [];
      await until(() => parts().some((part) => part.type === turn.stop && part.text));
      await talk.chat.stop();
      await sending;
      told('stopped');
    } else await talk.chat.sendMessage(typeof turn === 'string' ? { text: turn } : turn);
  }
  return what(talk);
}

// --- useChat itself, in a page

async function page({ url, body, turns }) {
  const { Window } = await import('happy-dom');
  const window = new Window({ url: 'http://localhost/' });
  const real = fetch;
  for (const name of ['window', 'document', 'navigator', 'HTMLIFrameElement']) {
    Object.defineProperty(globalThis, name, { value: name === 'window' ? window : window[name], configurable: true });
  }
  const { createElement: make, useState } = await import('react');
  const { createRoot } = await import('react-dom/client');
  let chat;
  const seen = new Set();
  const show = (part, index) => make('p', { key: index, className: part.type }, part.text ?? part.type);
  function Page() {
    const [transport] = useState(() => new ai7.DefaultChatTransport({ api: url, body, fetch: real }));
    chat = useChat({ transport });
    seen.add(chat.status);
    return make(
      'main',
      null,
      chat.messages.map((message) => make('div', { key: message.id, className: message.role }, message.parts.map(show))),
      chat.error && make('b', null, chat.error.message),
    );
  }
  const root = createRoot(document.body.appendChild(document.createElement('section')));
  root.render(make(Page));
  await until(() => chat !== undefined);
  for (const text of turns) {
    await chat.sendMessage({ text });
    await until(() => ['ready', 'error'].includes(chat.status));
  }
  await new Promise((resolve) => setTimeout(resolve, 20));
  const texts = (name) => [...document.querySelectorAll(name)].map((node) => node.textContent);
  const gave = {
    reasoning: texts('.reasoning'),
    text: texts('.assistant .text'),
    error: texts('b'),
    statuses: [...seen],
    count: document.querySelectorAll('div').length,
  };
  root.unmount();
  return gave;
}

const does = { reads, chats, page }[process.argv[2]];
const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const gave = await does(JSON.parse(Buffer.concat(chunks)));
// What is kept open (connections, a page's timers) is not waited for.
process.stdout.write(`${JSON.stringify({ gave })}\n`, () => process.exit(0));
