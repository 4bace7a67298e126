// OpenAI's client for Node. Each function does what an application does, and returns what it received.
import OpenAI from 'openai';

const client = (options) =>
  new OpenAI({
    baseURL: options.url,
    apiKey: options.key ?? 'any',
    maxRetries: 0,
    defaultHeaders: options.headers,
  });

const deltas = (events, kind) =>
  events.filter((event) => event.type === `response.${kind}.delta`).map((event) => event.delta).join('');

export async function streams({ model, ...options }) {
  const events = [];
  for await (const event of await client(options).responses.create({ model, input: 'Why?', stream: true })) {
    events.push(event);
  }
  return {
    numbers: events.map((event) => event.sequence_number),
    thought: deltas(events, 'reasoning_text'),
    text: deltas(events, 'output_text'),
    last: events.at(-1).type,
    output: events.at(-1).response.output.map((item) => item.type),
  };
}

export async function follows_with_the_helper({ model, tools, ...options }) {
  const kinds = [];
  const stream = client(options).responses.stream({ model, input: 'Weather?', tools });
  for await (const event of stream) kinds.push(event.type);
  const final = await stream.finalResponse();
  return { kinds, output: final.output };
}

// Three turns; the last two begin with the tool's results. `by`: "id" (the gateway stores the history) or "echo" (the
// client sends it).
export async function calls_tools({ model, tools, by, include, ...options }) {
  const openai = client(options);
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

export async function resumes({ model, onProgress, ...options }) {
  const openai = client(options);
  const seen = [];
  for await (const event of await openai.responses.create({ model, input: 'Why?', background: true, stream: true })) {
    seen.push(event);
    if (event.type === 'response.reasoning_text.delta') break; // disconnect
  }
  const id = seen[0].response.id;
  const after = seen.at(-1).sequence_number;
  const rest = await openai.responses.retrieve(id, { stream: true, starting_after: after });
  onProgress('disconnected');
  for await (const event of rest) seen.push(event);
  const again = [];
  for await (const event of await openai.responses.retrieve(id, { stream: true })) again.push(event);
  return {
    numbers: seen.map((event) => event.sequence_number),
    thought: deltas(seen, 'reasoning_text'),
    text: deltas(seen, 'output_text'),
    same: JSON.stringify(again) === JSON.stringify(seen),
    stored: (await openai.responses.retrieve(id)).output_text,
  };
}

export async function cancels({ model, ...options }) {
  const openai = client(options);
  const { id } = await openai.responses.create({ model, input: 'Why?', background: true });
  const cancelled = await openai.responses.cancel(id);
  return [cancelled.status, (await openai.responses.retrieve(id)).status];
}

export async function lists_and_deletes({ model, ...options }) {
  const openai = client(options);
  const input = [1, 2, 3, 4, 5].map((n) => ({ role: 'user', content: `number ${n}` }));
  const response = await openai.responses.create({ model, input });
  const listed = [];
  for await (const item of openai.responses.inputItems.list(response.id, { limit: 2, order: 'asc' })) listed.push(item);
  await openai.responses.delete(response.id);
  const missing = await openai.responses.retrieve(response.id).catch((error) => error.status);
  return { listed: listed.map((item) => item.content[0].text), missing };
}

export async function converses({ model, ...options }) {
  const openai = client(options);
  const items = [{ type: 'message', role: 'user', content: 'My name is Ada.' }];
  const { id } = await openai.conversations.create({ metadata: { topic: 'names' }, items });
  await openai.responses.create({ model, input: 'Why?', conversation: id });
  const kinds = [];
  for await (const item of openai.conversations.items.list(id, { order: 'asc', limit: 2 })) kinds.push(item.type);
  const { metadata } = await openai.conversations.update(id, { metadata: { topic: 'people' } });
  const { deleted } = await openai.conversations.delete(id);
  return { kinds, metadata, deleted };
}

export async function completes({ model, ...options }) {
  const openai = client(options);
  const messages = [{ role: 'user', content: 'Why?' }];
  const { message } = (await openai.chat.completions.create({ model, messages })).choices[0];
  let thought = '';
  let text = '';
  for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true })) {
    thought += chunk.choices[0]?.delta.reasoning_content ?? '';
    text += chunk.choices[0]?.delta.content ?? '';
  }
  return { complete: [message.reasoning_content, message.content], streamed: [thought, text] };
}

export async function fails({ requests, ...options }) {
  const results = [];
  for (const { key, ...request } of requests) {
    try {
      await client({ ...options, key }).responses.create({ input: 'Why?', ...request });
      results.push('no error');
    } catch (error) {
      const { status, code } = error;
      results.push({ name: error.constructor.name, status, code, retry: error.headers?.get('retry-after') ?? null });
    }
  }
  return results;
}
