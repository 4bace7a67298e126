// The AI SDK as a client of the gateway. Each function does what an application does, and returns what it received.
// node chats.mjs FUNCTION: reads the arguments as JSON from stdin. Prints a line {progress} for each progress message,
// and {result} as the last line.
import * as ai5 from 'ai5';
import * as ai6 from 'ai6';
import * as ai7 from 'ai';
import { Chat, useChat } from '@ai-sdk/react';

const VERSIONS = { 5: ai5, 6: ai6, 7: ai7 };
const onProgress = (progress) => console.log(JSON.stringify({ progress }));
const plain = (value) => JSON.parse(JSON.stringify(value));

// --- streams as the clients read them: their schema checks each chunk, and their reader builds the message

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
  const results = {};
  for (const [version, ai] of Object.entries(VERSIONS)) {
    results[version] = [];
    for (const stream of streams) results[version].push(await read(ai, Uint8Array.from(Buffer.from(stream, 'base64'))));
  }
  return results;
}

// --- a chat of @ai-sdk/react with the default transport

const until = async (condition) => {
  for (let left = 3000; !condition(); left--) {
    if (left === 0) throw new Error('the condition was not met');
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

const resultOf = ({ chat, sent, heads, errors, finishes }) => ({
  messages: plain(chat.messages),
  status: chat.status,
  sent,
  heads,
  errors,
  finishes,
});

// `turns`: a text to send, or {regenerate: true}, or {stop: KIND}: stop when a part of that kind has text.
async function chats({ turns, ...options }) {
  const chat = chatOf(options);
  for (const turn of turns) {
    if (turn.regenerate) await chat.chat.regenerate();
    else if (turn.resume) await chat.chat.resumeStream();
    else if (turn.resend) await chat.chat.sendMessage();
    else if (turn.stop) {
      const sending = chat.chat.sendMessage({ text: turn.text });
      const parts = () => chat.chat.lastMessage?.parts ?? [];
      await until(() => parts().some((part) => part.type === turn.stop && part.text));
      await chat.chat.stop();
      await sending;
      onProgress('stopped');
    } else await chat.chat.sendMessage(typeof turn === 'string' ? { text: turn } : turn);
  }
  return resultOf(chat);
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
  const result = {
    reasoning: texts('.reasoning'),
    text: texts('.assistant .text'),
    error: texts('b'),
    statuses: [...seen],
    count: document.querySelectorAll('div').length,
  };
  root.unmount();
  return result;
}

const run = { reads, chats, page }[process.argv[2]];
const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const result = await run(JSON.parse(Buffer.concat(chunks)));
// Do not wait for open connections and timers of the page.
process.stdout.write(`${JSON.stringify({ result })}\n`, () => process.exit(0));
