// OpenAI's client for Node. Each function is one thing that an application does; what it gives is what it saw.
import OpenAI from 'openai';

const client = (given) =>
  new OpenAI({
    baseURL: given.url,
    apiKey: given.key ?? 'any',
    maxRetries: 0,
    defaultHeaders: { 'OpenResponses-Reasoning-Events': 'openai', ...given.headers },
  });

const deltas = (events, kind) =>
  events.filter((event) => event.type === `response.${kind}.delta`).map((event) => event.delta).join('');

export async function streams({ model, ...given }) {
  const events = [];
  for await (const event of await client(given).responses.create({ model, input: 'Why?', stream: true })) {
    events.push(event);
  }
  return {
    numbers: events.map((event) => event.sequence_number),
    thought: deltas(events, 'reasoning_text'),
    said: deltas(events, 'output_text'),
    last: events.at(-1).type,
    output: events.at(-1).response.output.map((item) => item.type),
  };
}

export async function follows_with_the_helper({ model, tools, ...given }) {
  const kinds = [];
  const stream = client(given).responses.stream({ model, input: 'Weather?', tools });
  for await (const event of stream) kinds.push(event.type);
  const final = await stream.finalResponse();
  return { kinds, output: final.output };
}

// Three turns, each with what the tool gave. `by`: "id" (the gateway remembers) or "echo" (the client does).
export async function calls_tools({ model, tools, by, include, ...given }) {
  const openai = client(given);
  const stateless = by === 'echo' ? { store: false, include } : {};
  let input = [{ role: 'user', content: 'Weather?' }];
  let response = await openai.responses.create({ model, tools, input, ...stateless });
  for (let turn = 0; turn < 2; turn++) {
    const results = response.output
      .filter((item) => item.type === 'function_call')
      .map((call) => ({
        type: 'function_call_output',
        call_id: call.call_id,
        output: `rain in ${JSON.parse(call.arguments).city}`,
      }));
    if (by === 'echo') {
      input = [...input, ...response.output, ...results];
      response = await openai.responses.create({ model, tools, input, ...stateless });
    } else {
      response = await openai.responses.create({ model, tools, input: results, previous_response_id: response.id });
    }
  }
  return response.output_text;
}

export async function resumes({ model, told, ...given }) {
  const openai = client(given);
  const seen = [];
  for await (const event of await openai.responses.create({ model, input: 'Why?', background: true, stream: true })) {
    seen.push(event);
    if (event.type === 'response.reasoning_text.delta') break; // the connection is given up here
  }
  const id = seen[0].response.id;
  const after = seen.at(-1).sequence_number;
  const rest = await openai.responses.retrieve(id, { stream: true, starting_after: after });
  told('broke off');
  for await (const event of rest) seen.push(event);
  const again = [];
  for await (const event of await openai.responses.retrieve(id, { stream: true })) again.push(event);
  return {
    numbers: seen.map((event) => event.sequence_number),
    thought: deltas(seen, 'reasoning_text'),
    said: deltas(seen, 'output_text'),
    same: JSON.stringify(again) === JSON.stringify(seen),
    whole: (await openai.responses.retrieve(id)).output_text,
  };
}

export async function cancels({ model, ...given }) {
  const openai = client(given);
  const { id } = await openai.responses.create({ model, input: 'Why?', background: true });
  const cancelled = await openai.responses.cancel(id);
  return [cancelled.status, (await openai.responses.retrieve(id)).status];
}

export async function keeps({ model, ...given }) {
  const openai = client(given);
  const input = [1, 2, 3, 4, 5].map((n) => ({ role: 'user', content: `number ${n}` }));
  const response = await openai.responses.create({ model, input });
  const listed = [];
  for await (const item of openai.responses.inputItems.list(response.id, { limit: 2, order: 'asc' })) listed.push(item);
  await openai.responses.delete(response.id);
  const missing = await openai.responses.retrieve(response.id).catch((error) => error.status);
  return { listed: listed.map((item) => item.content), missing };
}

export async function converses({ model, ...given }) {
  const openai = client(given);
  const items = [{ type: 'message', role: 'user', content: 'My name is Ada.' }];
  const { id } = await openai.conversations.create({ metadata: { topic: 'names' }, items });
  await openai.responses.create({ model, input: 'Why?', conversation: id });
  const kinds = [];
  for await (const item of openai.conversations.items.list(id, { order: 'asc', limit: 2 })) kinds.push(item.type);
  const { metadata } = await openai.conversations.update(id, { metadata: { topic: 'people' } });
  const { deleted } = await openai.conversations.delete(id);
  return { kinds, metadata, deleted };
}

export async function completes({ model, ...given }) {
  const openai = client(given);
  const messages = [{ role: 'user', content: 'Why?' }];
  const { message } = (await openai.chat.completions.create({ model, messages })).choices[0];
  let thought = '';
  let said = '';
  for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true })) {
    thought += chunk.choices[0]?.delta.reasoning_content ?? '';
    said += chunk.choices[0]?.delta.content ?? '';
  }
  return { whole: [message.reasoning_content, message.content], streamed: [thought, said] };
}

export async function fails({ requests, ...given }) {
  const told = [];
  for (const { key, ...request } of requests) {
    try {
      await client({ ...given, key }).responses.create({ input: 'Why?', ...request });
      told.push('nothing was wrong');
    } catch (error) {
      const { status, code } = error;
      told.push({ name: error.constructor.name, status, code, retry: error.headers?.get('retry-after') ?? null });
    }
  }
  return told;
}
