// Anthropic's client for Node. Each function does what an application does, and returns what it received.
import Anthropic from '@anthropic-ai/sdk';

const client = (options) => new Anthropic({ baseURL: options.url, apiKey: 'any', maxRetries: 0 });
const user = (content) => ({ role: 'user', content });

export async function follows_with_the_helper({ model, ...options }) {
  const seen = { thinking: '', text: '', signatures: [], blocks: [] };
  const stream = client(options)
    .messages.stream({ model, max_tokens: 999, messages: [user('Why?')] })
    .on('thinking', (delta) => (seen.thinking += delta))
    .on('signature', (signature) => seen.signatures.push(signature))
    .on('text', (delta) => (seen.text += delta))
    .on('contentBlock', (block) => seen.blocks.push(block));
  const message = await stream.finalMessage();
  return { ...seen, message };
}

// Three turns, whose messages the helper accumulates and the application sends back.
export async function calls_tools({ model, tools, ...options }) {
  const anthropic = client(options);
  const messages = [user('Weather?')];
  for (;;) {
    const message = await anthropic.messages.stream({ model, max_tokens: 999, tools, messages }).finalMessage();
    messages.push({ role: 'assistant', content: message.content });
    const calls = message.content.filter((block) => block.type === 'tool_use');
    if (!calls.length) return messages.filter(({ role }) => role === 'assistant').map(({ content }) => content);
    messages.push(user(calls.map(({ id, input }) => (
      { type: 'tool_result', tool_use_id: id, content: `rain in ${input.city}` }))));
  }
}

export async function runs_tools({ model, tools, stream, ...options }) {
  const runnable = tools.map((tool) => ({ ...tool, type: 'custom', run: ({ city }) => `rain in ${city}` }));
  const runner = client(options).beta.messages.toolRunner({
    model, max_tokens: 999, tools: runnable, messages: [user('Weather?')], stream,
  });
  return (await runner.runUntilDone()).content;
}

export async function fails({ model, ...options }) {
  try {
    await client(options).messages.stream({ model, max_tokens: 999, messages: [user('Why?')] }).finalMessage();
  } catch (error) {
    return { name: error.constructor.name, status: error.status, type: error.error?.error?.type };
  }
}
