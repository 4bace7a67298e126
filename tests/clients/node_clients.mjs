// The Node clients of the matrix, as applications use them.
//
//     node node_clients.mjs '{"url": …, "models": {CLIENT: {SCENARIO: MODEL}}}'
//
// Prints a line of JSON for each scenario of each client: what the client showed, or how it reported a failure.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

globalThis.AI_SDK_LOG_WARNINGS = false;
console.warn = console.error = () => {};

const QUESTION = 'Why?';
const NEXT_QUESTION = 'And why that?';
const WEATHER = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };
const weather = (city) => `rain in ${city}`;
const packageAt = (name) => JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url)));
const joined = (texts) => texts.filter(Boolean).join('');

// An answer that failed, without an exception of the client. The message says how the client shows that.
class Failed extends Error {}

// The scenarios of a client that leaves the loop over calls to the application. `ask` returns the thought, the text, the
// calls ({ id, city }) and what an application appends to its history; `results` returns messages for calls.
const looping = ({ ask, results, question = (text) => ({ role: 'user', content: text }) }) => ({
  streamed: async (model) => shown(await ask(model, [question(QUESTION)], { stream: true })),
  whole: async (model) => shown(await ask(model, [question(QUESTION)], {})),
  async tools(model) {
    const history = [question(QUESTION)];
    for (;;) {
      const answer = await ask(model, history, { stream: true, tools: true });
      if (!answer.calls.length) return answer.text;
      history.push(...answer.history, ...results(answer.calls));
    }
  },
  async next_turn(model) {
    const history = [question(QUESTION)];
    history.push(...(await ask(model, history, { stream: true })).history, question(NEXT_QUESTION));
    return (await ask(model, history, { stream: true })).text;
  },
});

const shown = ({ thought, text }) => ({ thought, text });

async function failureOf(run) {
  try {
    await run();
  } catch (error) {
    if (error instanceof Failed) return error.message;
    return error instanceof Error ? error.constructor.name : `the event \`${error.type}\``;
  }
  return 'nothing';
}

// --- OpenAI ----------------------------------------------------------------------------------------------------------

const openai = async (name, url) => new (await import(name)).default({ baseURL: `${url}/v1`, apiKey: 'any', maxRetries: 0 });

const openaiResponses = (name) => async (url) => {
  const client = await openai(name, url);
  const functions = [{ type: 'function', name: 'get_weather', parameters: WEATHER, strict: false }];
  return looping({
    async ask(model, input, { stream, tools }) {
      const request = { model, input, ...(tools && { tools: functions }) };
      let thought = '';
      let response;
      if (stream) {
        const events = client.responses.stream(request);
        for await (const event of events) {
          if (/^response\.reasoning(_summary)?_text\.delta$/.test(event.type)) thought += event.delta;
        }
        response = await events.finalResponse();
      } else {
        response = await client.responses.create(request);
        const items = response.output.filter((item) => item.type === 'reasoning');
        thought = joined(items.flatMap((item) => item.content ?? item.summary).map((text) => text.text));
      }
      if (response.status !== 'completed') throw new Failed(`status ${response.status}`);
      const calls = response.output
        .filter((item) => item.type === 'function_call')
        .map((item) => ({ id: item.call_id, city: JSON.parse(item.arguments).city }));
      return { thought, text: response.output_text, calls, history: response.output };
    },
    results: (calls) =>
      calls.map(({ id, city }) => ({ type: 'function_call_output', call_id: id, output: weather(city) })),
  });
};

const toolMessages = (calls) => calls.map(({ id, city }) => ({ role: 'tool', tool_call_id: id, content: weather(city) }));

const openaiChat = (name) => async (url) => {
  const client = await openai(name, url);
  const functions = [{ type: 'function', function: { name: 'get_weather', parameters: WEATHER } }];
  return looping({
    async ask(model, messages, { stream, tools }) {
      const request = { model, messages, ...(tools && { tools: functions }) };
      let thought = '';
      let message;
      if (stream) {
        const chunks = client.chat.completions.stream(request);
        for await (const chunk of chunks) thought += chunk.choices[0]?.delta.reasoning_content ?? '';
        message = await chunks.finalMessage();
      } else {
        ({ message } = (await client.chat.completions.create(request)).choices[0]);
        thought = message.reasoning_content ?? '';
      }
      const calls = (message.tool_calls ?? []).map((call) => ({ id: call.id, city: JSON.parse(call.function.arguments).city }));
      return { thought, text: message.content ?? '', calls, history: [message] };
    },
    results: toolMessages,
  });
};

const openaiAgents = async (url) => {
  const { Agent, run, tool, OpenAIResponsesModel, setTracingDisabled } = await import('@openai/agents');
  setTracingDisabled(true);
  const client = await openai('openai', url);
  const getWeather = tool({
    name: 'get_weather',
    description: 'Look up the weather.',
    parameters: WEATHER,
    strict: true,
    execute: ({ city }) => weather(city),
  });
  const agent = (model, tools = []) => new Agent({ name: 'a', model: new OpenAIResponsesModel(client, model), tools });
  return {
    async streamed(model) {
      const result = await run(agent(model), QUESTION, { stream: true });
      let thought = '';
      for await (const event of result) {
        const raw = event.type === 'raw_model_stream_event' && event.data.type === 'model' ? event.data.event : {};
        if (raw.type === 'response.reasoning_summary_text.delta') thought += raw.delta;
      }
      await result.completed;
      return shown({ thought, text: result.finalOutput });
    },
    async whole(model) {
      const result = await run(agent(model), QUESTION);
      const items = result.newItems.filter((item) => item.type === 'reasoning_item');
      const texts = items.flatMap((item) => item.rawItem.content.map((part) => part.text));
      return shown({ thought: joined(texts), text: result.finalOutput });
    },
    tools: async (model) => (await run(agent(model, [getWeather]), QUESTION)).finalOutput,
    async next_turn(model) {
      const { history } = await run(agent(model), QUESTION);
      return (await run(agent(model), [...history, { role: 'user', content: NEXT_QUESTION }])).finalOutput;
    },
  };
};

const langChain = async (url) => {
  const { ChatOpenAI } = await import('@langchain/openai');
  const { AIMessageChunk, ToolMessage } = await import('@langchain/core/messages');
  const functions = [{ type: 'function', function: { name: 'get_weather', parameters: WEATHER } }];
  // `contentBlocks` of the last chunk of a stream has everything again.
  const thoughtOf = ({ content }) =>
    joined((Array.isArray(content) ? content : []).map((block) => block.type === 'reasoning' && block.reasoning));
  return looping({
    async ask(model, messages, { stream, tools }) {
      const configuration = { baseURL: `${url}/v1` };
      let chat = new ChatOpenAI({ model, useResponsesApi: true, apiKey: 'any', maxRetries: 0, configuration });
      if (tools) chat = chat.bindTools(functions);
      let thought = '';
      let message;
      if (stream) {
        for await (const chunk of await chat.stream(messages)) {
          thought += thoughtOf(chunk);
          message = message ? message.concat(chunk) : chunk;
        }
      } else {
        message = await chat.invoke(messages);
        thought = thoughtOf(message);
      }
      const calls = (message.tool_calls ?? []).map((call) => ({ id: call.id, city: call.args.city }));
      return { thought, text: message.text, calls, history: [message] };
    },
    results: (calls) => calls.map(({ id, city }) => new ToolMessage({ tool_call_id: id, content: weather(city) })),
  });
};

// --- the AI SDK -------------------------------------------------------------------------------------------------------

const aiSDK = (ai, provider, create) => async (url) => {
  const { generateText, streamText, jsonSchema, tool, stepCountIs } = await import(ai);
  const models = create(await import(provider), url);
  const request = (model) => ({ model: models(model), maxRetries: 0, onError: () => {} });
  const tools = {
    get_weather: tool({ inputSchema: jsonSchema(WEATHER), execute: async ({ city }) => weather(city) }),
  };
  const stream = async (model) => {
    const result = streamText({ ...request(model), prompt: QUESTION });
    let [thought, text] = ['', ''];
    for await (const part of result.fullStream) {
      if (part.type === 'reasoning-delta') thought += part.text;
      if (part.type === 'text-delta') text += part.text;
      if (part.type === 'error') throw new Failed('part `error`');
    }
    const reason = await result.finishReason;
    if (reason !== 'stop') throw new Failed(`finish reason ${reason}`);
    return shown({ thought, text });
  };
  return {
    streamed: stream,
    async whole(model) {
      const { reasoningText, text } = await generateText({ ...request(model), prompt: QUESTION });
      return shown({ thought: reasoningText ?? '', text });
    },
    async tools(model) {
      const result = streamText({ ...request(model), tools, stopWhen: stepCountIs(5), prompt: QUESTION });
      return await result.text;
    },
    async next_turn(model) {
      const messages = [{ role: 'user', content: QUESTION }];
      const { response } = await generateText({ ...request(model), messages });
      messages.push(...response.messages, { role: 'user', content: NEXT_QUESTION });
      return (await generateText({ ...request(model), messages })).text;
    },
  };
};

const AI_SDK_PROVIDERS = {
  openai: ['@ai-sdk/openai', ({ createOpenAI }, url) => createOpenAI({ baseURL: `${url}/v1`, apiKey: 'any' })],
  'open-responses': [
    '@ai-sdk/open-responses',
    ({ createOpenResponses }, url) => createOpenResponses({ name: 'pellucid', url: `${url}/v1/responses`, apiKey: 'any' }),
  ],
  'openai-compatible': [
    '@ai-sdk/openai-compatible',
    ({ createOpenAICompatible }, url) => createOpenAICompatible({ name: 'pellucid', baseURL: `${url}/v1`, apiKey: 'any' }),
  ],
  anthropic: ['@ai-sdk/anthropic', ({ createAnthropic }, url) => createAnthropic({ baseURL: `${url}/v1`, apiKey: 'any' })],
};
const AI_SDK_GENERATIONS = {
  6: { ai: 'ai', suffix: () => '' },
  7: { ai: 'ai-7', suffix: (name) => ({ openai: '-4', 'open-responses': '-2', 'openai-compatible': '-3', anthropic: '-4' })[name] },
};

// --- Anthropic -------------------------------------------------------------------------------------------------------

const anthropic = async (url) => {
  const client = new (await import('@anthropic-ai/sdk')).default({ baseURL: url, apiKey: 'any', maxRetries: 0 });
  const functions = [{ name: 'get_weather', input_schema: WEATHER }];
  const blocks = (message, type) => message.content.filter((block) => block.type === type);
  return looping({
    async ask(model, messages, { stream, tools }) {
      const request = { model, max_tokens: 999, messages, ...(tools && { tools: functions }) };
      let thought = '';
      let message;
      if (stream) {
        const events = client.messages.stream(request).on('thinking', (delta) => (thought += delta));
        message = await events.finalMessage();
      } else {
        message = await client.messages.create(request);
        thought = joined(blocks(message, 'thinking').map((block) => block.thinking));
      }
      const calls = blocks(message, 'tool_use').map((block) => ({ id: block.id, city: block.input.city }));
      const text = joined(blocks(message, 'text').map((block) => block.text));
      return { thought, text, calls, history: [{ role: 'assistant', content: message.content }] };
    },
    results: (calls) => [
      { role: 'user', content: calls.map(({ id, city }) => ({ type: 'tool_result', tool_use_id: id, content: weather(city) })) },
    ],
  });
};

// --- AG-UI -----------------------------------------------------------------------------------------------------------

const agui = (name, query = '') => async (url) => {
  const { HttpAgent } = await import(name);
  const functions = [{ name: 'get_weather', description: 'Look up the weather.', parameters: WEATHER }];
  const ask = async (agent, message, tools = []) => {
    agent.messages.push(...message);
    let [thought, text, failed] = ['', '', false];
    await agent.runAgent({ tools }, {
      onEvent({ event }) {
        if (/^(REASONING_MESSAGE|THINKING_TEXT_MESSAGE)_CONTENT$/.test(event.type)) thought += event.delta;
        if (event.type === 'TEXT_MESSAGE_CONTENT') text += event.delta;
        failed ||= event.type === 'RUN_ERROR';
      },
    });
    if (failed) throw new Failed('the event `RUN_ERROR`');
    return { thought, text };
  };
  const agentFor = (model) => new HttpAgent({ url: `${url}/ag-ui?model=${encodeURIComponent(model)}${query}`, threadId: `t-${model}` });
  const question = (text) => [{ id: text, role: 'user', content: text }];
  return {
    streamed: async (model) => shown(await ask(agentFor(model), question(QUESTION))),
    async tools(model) {
      const agent = agentFor(model);
      let message = question(QUESTION);
      for (;;) {
        const { text } = await ask(agent, message, functions);
        const known = new Set(agent.messages.map((one) => one.toolCallId));
        const calls = agent.messages.flatMap((one) => one.toolCalls ?? []).filter(({ id }) => !known.has(id));
        if (!calls.length) return text;
        message = calls.map(({ id, function: { arguments: args } }) => ({
          id: `of-${id}`,
          role: 'tool',
          toolCallId: id,
          content: weather(JSON.parse(args).city),
        }));
      }
    },
    async next_turn(model) {
      const agent = agentFor(model);
      await ask(agent, question(QUESTION));
      return (await ask(agent, question(NEXT_QUESTION))).text;
    },
  };
};

// --- CopilotKit ------------------------------------------------------------------------------------------------------

const COPILOTKIT_PATH = '/api/copilotkit';

// The runtimes, as applications mount them.
const COPILOTKIT_RUNTIMES = {
  async 1(agents) {
    const { CopilotRuntime, ExperimentalEmptyAdapter, copilotRuntimeNodeHttpEndpoint } = await import('@copilotkit/runtime');
    const [runtime, serviceAdapter] = [new CopilotRuntime({ agents }), new ExperimentalEmptyAdapter()];
    return copilotRuntimeNodeHttpEndpoint({ runtime, serviceAdapter, endpoint: COPILOTKIT_PATH });
  },
  async 2(agents) {
    const { CopilotRuntime } = await import('@copilotkit/runtime/v2');
    const { createCopilotNodeListener } = await import('@copilotkit/runtime/v2/node');
    return createCopilotNodeListener({ runtime: new CopilotRuntime({ agents }), basePath: COPILOTKIT_PATH });
  },
};

// A runtime whose agents are the models, and pages: the part of a page that needs no browser.
const copilotKit = (generation) => async (url, models) => {
  process.env.COPILOTKIT_TELEMETRY_DISABLED = 'true';
  const { HttpAgent } = await import('@ag-ui/client');
  const { CopilotKitCore, ProxiedCopilotRuntimeAgent } = await import('@copilotkit/core');
  const { z } = await import('zod');
  const agentOf = (model) => new HttpAgent({ url: `${url}/ag-ui?model=${encodeURIComponent(model)}` });
  const agents = Object.fromEntries(models.map((model) => [model, agentOf(model)]));
  const server = createServer(await COPILOTKIT_RUNTIMES[generation](agents));
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const runtimeUrl = `http://127.0.0.1:${server.address().port}${COPILOTKIT_PATH}`;
  const getWeather = {
    name: 'get_weather',
    description: 'Look up the weather.',
    parameters: z.object({ city: z.string() }),
    handler: async ({ city }) => weather(city),
  };
  const openPage = (model, threadId = randomUUID()) => {
    const agent = new ProxiedCopilotRuntimeAgent({ runtimeUrl, agentId: model, threadId });
    const core = new CopilotKitCore({ agents__unsafe_dev_only: { [model]: agent }, tools: [getWeather] });
    let failure;
    core.subscribe({ onError: ({ code }) => void (failure ??= code) });
    return {
      agent,
      core,
      async ask(content) {
        const before = agent.messages.length;
        agent.addMessage({ id: randomUUID(), role: 'user', content });
        await core.runAgent({ agent });
        if (failure) throw new Failed(`\`onError\`: \`${failure}\``);
        const textOf = (wanted) =>
          joined(agent.messages.slice(before).map((message) => message.role === wanted && message.content));
        return { thought: textOf('reasoning'), text: textOf('assistant') };
      },
    };
  };
  return {
    streamed: (model) => openPage(model).ask(QUESTION),
    tools: async (model) => (await openPage(model).ask(QUESTION)).text,
    // The page is loaded again between the questions: the runtime has the messages.
    async next_turn(model) {
      const { agent, ask } = openPage(model);
      await ask(QUESTION);
      const reloaded = openPage(model, agent.threadId);
      await reloaded.core.connectAgent({ agent: reloaded.agent });
      return (await reloaded.ask(NEXT_QUESTION)).text;
    },
    // The user stops the model while it thinks, and asks again.
    async stopped(model) {
      const { agent, core, ask } = openPage(model);
      const { unsubscribe } = agent.subscribe({ onReasoningMessageContentEvent: () => core.stopAgent({ agent }) });
      await ask(QUESTION);
      unsubscribe();
      return (await ask(NEXT_QUESTION)).text;
    },
  };
};

// --- all of them -----------------------------------------------------------------------------------------------------

// The packages whose versions are shown, and a function that makes the scenarios of a client.
const CLIENTS = {
  'openai-node': [['openai'], openaiResponses('openai')],
  'openai-node-7': [['openai-7'], openaiResponses('openai-7')],
  'openai-node-chat': [['openai'], openaiChat('openai')],
  'openai-agents-node': [['@openai/agents'], openaiAgents],
  'langchain-node': [['@langchain/openai'], langChain],
  'anthropic-node': [['@anthropic-ai/sdk'], anthropic],
  'ag-ui': [['@ag-ui/client'], agui('@ag-ui/client')],
  'ag-ui-0.0.45': [['@ag-ui/client-0.0.45'], agui('@ag-ui/client-0.0.45')],
  'ag-ui-0.0.39': [['@ag-ui/client-0.0.39'], agui('@ag-ui/client-0.0.39', '&dialect=thinking')],
  'copilotkit-1': [['@copilotkit/runtime', '@copilotkit/core'], copilotKit(1)],
  'copilotkit-2': [['@copilotkit/runtime', '@copilotkit/core'], copilotKit(2)],
};
for (const [generation, { ai, suffix }] of Object.entries(AI_SDK_GENERATIONS)) {
  for (const [name, [provider, create]] of Object.entries(AI_SDK_PROVIDERS)) {
    const installed = `${provider}${suffix(name)}`;
    CLIENTS[`ai-sdk-${generation}-${name}`] = [[ai, installed], aiSDK(ai, installed, create)];
  }
}

const { url, models } = JSON.parse(process.argv[2]);
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
for (const [client, scenarios] of Object.entries(models)) {
  const [packages, create] = CLIENTS[client];
  print({ client, versions: Object.fromEntries(packages.map(packageAt).map(({ name, version }) => [name, version])) });
  const run = await create(url, Object.values(scenarios));
  for (const [scenario, model] of Object.entries(scenarios)) {
    let value;
    try {
      value = scenario in run ? await run[scenario](model) : await failureOf(() => run.streamed(model));
    } catch (error) {
      value = `broken: ${error.stack}`;
    }
    print({ client, scenario, value });
  }
}
process.exit(0);
