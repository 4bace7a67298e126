// The AI SDK with its providers for OpenResponses and for Anthropic's API.
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenResponses } from '@ai-sdk/open-responses';
import { APICallError, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';

// Warnings would be printed between the results: the SDK does not know the limits of these models.
globalThis.AI_SDK_LOG_WARNINGS = false;

const PROVIDERS = {
  openresponses: ({ url, ...options }) =>
    createOpenResponses({
      name: 'pellucid',
      url: `${url}/responses`,
      ...options,
    }),
  messages: ({ url, ...options }) => createAnthropic({ baseURL: url, ...options }),
};

const requestOf = ({ protocol, url, key, model, schema }) => ({
  model: PROVIDERS[protocol]({ url, apiKey: key ?? 'any' })(model),
  maxRetries: 0,
  tools: schema && {
    get_weather: tool({ inputSchema: jsonSchema(schema), execute: async ({ city }) => `rain in ${city}` }),
  },
  stopWhen: stepCountIs(5),
});

export async function generates(options) {
  const { text, reasoningText, finishReason, usage } = await generateText({ ...requestOf(options), prompt: 'Why?' });
  return { text, reasoningText, finishReason, output: usage.outputTokens };
}

export async function streams(options) {
  const parts = [];
  const result = streamText({ ...requestOf(options), prompt: 'Why?' });
  for await (const part of result.fullStream) {
    parts.push(part);
    if (part.type === 'reasoning-delta') options.onProgress('thinks');
  }
  const texts = (kind) => parts.filter((part) => part.type === kind).map((part) => part.text).join('');
  const kinds = parts.map((part) => part.type);
  return {
    thought: texts('reasoning-delta'),
    text: texts('text-delta'),
    kinds: kinds.filter((kind, index) => kind !== kinds[index - 1]),
    finish: await result.finishReason,
  };
}

// The SDK's own loop: it calls the tool and returns the complete conversation, until there is an answer.
export async function calls_tools({ streamed, ...options }) {
  const request = { ...requestOf(options), prompt: 'Weather?' };
  const result = streamed ? streamText(request) : await generateText(request);
  const steps = await result.steps;
  return {
    text: await result.text,
    steps: steps.map((step) => step.content.map((part) => part.type)),
    thoughts: steps.map((step) => step.reasoningText),
  };
}

export async function fails({ requests, ...options }) {
  const results = [];
  for (const request of requests) {
    try {
      await generateText({ ...requestOf({ ...options, ...request }), prompt: 'Why?' });
      results.push('no error');
    } catch (error) {
      const { statusCode, message, isRetryable } = error;
      results.push({ isAPICallError: APICallError.isInstance(error), statusCode, message, isRetryable });
    }
  }
  return results;
}
