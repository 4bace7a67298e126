// The AI SDK with its provider for OpenResponses, which knows raw reasoning by OpenAI's names alone.
import { createOpenResponses } from '@ai-sdk/open-responses';
import { APICallError, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';

const asked = ({ url, key, headers, model, schema }) => ({
  model: createOpenResponses({
    name: 'pellucid',
    url: `${url}/responses`,
    apiKey: key ?? 'any',
    headers: { 'OpenResponses-Reasoning-Events': 'openai', ...headers },
  })(model),
  maxRetries: 0,
  tools: schema && {
    get_weather: tool({ inputSchema: jsonSchema(schema), execute: async ({ city }) => `rain in ${city}` }),
  },
  stopWhen: stepCountIs(5),
});

export async function generates(given) {
  const { text, reasoningText, finishReason, usage } = await generateText({ ...asked(given), prompt: 'Why?' });
  return { text, reasoningText, finishReason, output: usage.outputTokens };
}

export async function streams(given) {
  const parts = [];
  const result = streamText({ ...asked(given), prompt: 'Why?' });
  for await (const part of result.fullStream) {
    parts.push(part);
    if (part.type === 'reasoning-delta') given.told('thinks');
  }
  const texts = (kind) => parts.filter((part) => part.type === kind).map((part) => part.text).join('');
  const kinds = parts.map((part) => part.type);
  return {
    thought: texts('reasoning-delta'),
    said: texts('text-delta'),
    kinds: kinds.filter((kind, index) => kind !== kinds[index - 1]),
    finish: await result.finishReason,
  };
}

// The SDK's own loop: it calls the tool and sends back the whole conversation, until there is an answer.
export async function calls_tools({ streamed, ...given }) {
  const request = { ...asked(given), prompt: 'Weather?' };
  const result = streamed ? streamText(request) : await generateText(request);
  const steps = await result.steps;
  return {
    text: await result.text,
    steps: steps.map((step) => step.content.map((part) => part.type)),
    thoughts: steps.map((step) => step.reasoningText),
  };
}

export async function fails({ requests, ...given }) {
  const told = [];
  for (const request of requests) {
    try {
      await generateText({ ...asked({ ...given, ...request }), prompt: 'Why?' });
      told.push('nothing was wrong');
    } catch (error) {
      const { statusCode, message, isRetryable } = error;
      told.push({ ours: APICallError.isInstance(error), statusCode, message, isRetryable });
    }
  }
  return told;
}
