// What OpenAI's JavaScript client asks and reads; run by openai_js_test.py. OPENAI_BUNDLE is the client as one file,
// SERVER_URL a `fathom serve` on the demo model with the key secret-key.
import assert from 'node:assert/strict';
import test from 'node:test';

const openai = await import(process.env.OPENAI_BUNDLE);
const OpenAI = openai.default;
const SERVER = process.env.SERVER_URL;

const APPLES = 'Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?';
const OSLO = 'What is the weather in Oslo?';
const MIA = 'Give me a JSON record for Mia, age 9.';
const CITY = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const WEATHER = { name: 'get_weather', description: 'Get the weather of a city', parameters: CITY };
const RECORD = {
  type: 'object', required: ['name', 'age'], additionalProperties: false,
  properties: { name: { type: 'string', enum: ['Mia', 'Tom'] }, age: { type: 'integer' } },
};
const THINKING = { thinking: { type: 'enabled' }, max_tokens: 200 };

const settings = { baseURL: SERVER + '/v1', apiKey: 'secret-key', maxRetries: 0 };
const client = new OpenAI(settings);
const user = (content) => [{ role: 'user', content }];
const chat = (question, more = {}) => ({
  model: 'default', messages: user(question), temperature: 0, max_tokens: 64, ...more,
});
const ask = (question, more) => client.chat.completions.create(chat(question, more));
const respond = (input, more) =>
  client.responses.create({ model: 'default', input, temperature: 0, max_output_tokens: 128, ...more });

async function all(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}
const deltas = (chunks, field) => chunks.map((chunk) => chunk.choices[0]?.delta[field] ?? '').join('');

/** A Standard Schema for the helpers of the client: a JSON schema and a check. */
const standard = (schema, isValid) => ({
  '~standard': {
    version: 1, vendor: 'test', jsonSchema: { input: () => schema },
    validate: (value) => (isValid(value) ? { value } : { issues: [{ message: 'does not fit' }] }),
  },
});

async function metric(name) {
  const answer = await fetch(SERVER + '/metrics', { headers: { Authorization: 'Bearer secret-key' } });
  return Number(new RegExp(`^${name}\\{.*\\} (\\d+)$`, 'm').exec(await answer.text())[1]);
}

test('models are listed and found by name', async () => {
  const models = await all(await client.models.list());
  assert.equal((await client.models.retrieve(models[0].id)).id, models[0].id);
  await assert.rejects(client.models.retrieve('another-model'), OpenAI.NotFoundError);
});

test('a chat answers, and its stream joins to the same', async () => {
  const whole = await ask(APPLES);
  assert.match(whole.choices[0].message.content, /19/);
  assert.equal(whole.choices[0].finish_reason, 'stop');
  const chunks = await all(await ask(APPLES, { stream: true, stream_options: { include_usage: true } }));
  assert.equal(deltas(chunks, 'content'), whole.choices[0].message.content);
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, whole.usage.completion_tokens);
});

test('thinking is apart from the answer, whole and in a stream', async () => {
  const { message } = (await ask(APPLES, THINKING)).choices[0];
  assert.match(message.content, /19/);
  assert.ok(message.reasoning_content);
  const chunks = await all(await ask(APPLES, { ...THINKING, stream: true }));
  assert.equal(deltas(chunks, 'reasoning_content'), message.reasoning_content);
  assert.equal(deltas(chunks, 'content'), message.content);
  const again = await client.chat.completions.create({
    ...chat('', THINKING), messages: [...user(APPLES), message, ...user('Are you sure?')],
  });
  assert.ok(again.choices[0].message.content);
});

test('a tool call comes whole, and in pieces through stream()', async () => {
  const forced = { tools: [{ type: 'function', function: WEATHER }], tool_choice: 'required', max_tokens: 128 };
  const whole = (await ask(OSLO, forced)).choices[0];
  assert.equal(whole.finish_reason, 'tool_calls');
  const call = whole.message.tool_calls[0].function;
  assert.deepEqual([call.name, JSON.parse(call.arguments)], ['get_weather', { city: 'Oslo' }]);
  const pieces = [];
  const stream = client.chat.completions.stream(chat(OSLO, forced));
  stream.on('tool_calls.function.arguments.delta', (event) => pieces.push(event.arguments_delta));
  const final = await stream.finalChatCompletion();
  assert.ok(pieces.filter((piece) => piece).length > 2);
  assert.equal(pieces.join(''), call.arguments);
  assert.equal(final.choices[0].message.tool_calls[0].function.arguments, call.arguments);
  assert.equal(final.choices[0].finish_reason, 'tool_calls');
});

test('runTools calls the function and answers, whole and streamed', async () => {
  for (const stream of [false, true]) {
    const asked = [];
    const tool = {
      ...WEATHER, parse: JSON.parse,
      function: ({ city }) => {
        asked.push(city);
        return `${city}: Rain, 7 degrees`;
      },
    };
    const runner = client.chat.completions.runTools(
      chat(OSLO, { stream, tools: [{ type: 'function', function: tool }], max_tokens: 200 }),
      { maxChatCompletions: 4 });
    assert.ok(await runner.finalContent());
    assert.deepEqual(asked, ['Oslo']);
    assert.deepEqual(runner.messages.map((message) => message.role), ['user', 'assistant', 'tool', 'assistant']);
  }
});

test('a response format holds, whole, parsed and streamed', async () => {
  const format = { type: 'json_schema', json_schema: { name: 'record', schema: RECORD, strict: true } };
  const record = JSON.parse((await ask(MIA, { response_format: format, max_tokens: 200 })).choices[0].message.content);
  assert.deepEqual(Object.keys(record).sort(), ['age', 'name']);
  const isRecord = (value) => Number.isInteger(value.age) && typeof value.name === 'string';
  const fields = chat(MIA, {
    response_format: openai.standardResponseFormat(standard(RECORD, isRecord), 'record'), max_tokens: 200,
  });
  assert.deepEqual((await client.chat.completions.parse(fields)).choices[0].message.parsed, record);
  const final = await client.chat.completions.stream(fields).finalChatCompletion();
  assert.deepEqual(final.choices[0].message.parsed, record);
});

test('log probabilities come with their alternatives', async () => {
  const fields = { logprobs: true, top_logprobs: 3, max_tokens: 5 };
  const { content } = (await ask(APPLES, fields)).choices[0].logprobs;
  assert.deepEqual(content.map((token) => token.top_logprobs.length), [3, 3, 3, 3, 3]);
  assert.ok(content.every((token) => token.logprob <= 0 && token.token === token.top_logprobs[0].token));
  const stream = await all(await ask(APPLES, { ...fields, stream: true }));
  const streamed = stream.flatMap((chunk) => chunk.choices[0]?.logprobs?.content ?? []);
  assert.deepEqual(streamed.map((token) => token.token), content.map((token) => token.token));
});

test('a completion echoes its prompt and streams', async () => {
  const prompt = 'Question: What is 3+4?\nAnswer:';
  const fields = { model: 'default', prompt, max_tokens: 8, temperature: 0 };
  const plain = (await client.completions.create(fields)).choices[0].text;
  const echoed = (await client.completions.create({ ...fields, echo: true, logprobs: 1 })).choices[0];
  assert.equal(echoed.text, prompt + plain);
  assert.equal(echoed.logprobs.token_logprobs[0], null);
  assert.equal(echoed.logprobs.tokens.slice(1).join(''), echoed.text, 'behind the token that begins every text');
  const chunks = await all(await client.completions.create({ ...fields, stream: true }));
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(''), plain);
});

test('a response answers, streams its events and continues another', async () => {
  const whole = await respond(APPLES);
  assert.match(whole.output_text, /19/);
  const events = await all(await respond(APPLES, { stream: true }));
  assert.deepEqual(events.map((event) => event.sequence_number), [...events.keys()]);
  assert.equal(events[0].type, 'response.created');
  assert.equal(events.at(-1).type, 'response.completed');
  const stream = client.responses.stream({ model: 'default', input: APPLES, temperature: 0, max_output_tokens: 128 });
  const pieces = [];
  stream.on('response.output_text.delta', (event) => pieces.push(event.delta));
  assert.equal((await stream.finalResponse()).output_text, whole.output_text);
  assert.equal(pieces.join(''), whole.output_text);
  assert.equal((await client.responses.retrieve(whole.id)).output_text, whole.output_text);
  assert.equal((await respond('Are you sure?', { previous_response_id: whole.id })).object, 'response');
});

test('reasoning is an item of its own in a response and in its events', async () => {
  const fields = { reasoning: { effort: 'high' }, max_output_tokens: 200 };
  const whole = await respond(APPLES, fields);
  assert.equal(whole.output[0].type, 'reasoning');
  const events = await all(await respond(APPLES, { ...fields, stream: true }));
  const thought = events.filter((event) => event.type === 'response.reasoning_text.delta');
  assert.equal(thought.map((event) => event.delta).join(''), whole.output[0].content[0].text);
});

test('a response calls a function, whole and in events, and reads its result', async () => {
  const fields = { tools: [{ type: 'function', strict: false, ...WEATHER }], tool_choice: 'required' };
  const whole = await respond(OSLO, fields);
  const call = whole.output.at(-1);
  assert.deepEqual([call.type, call.name, JSON.parse(call.arguments)], ['function_call', 'get_weather', { city: 'Oslo' }]);
  const events = await all(await respond(OSLO, { ...fields, stream: true }));
  const pieces = events.filter((event) => event.type === 'response.function_call_arguments.delta');
  assert.equal(pieces.map((event) => event.delta).join(''), call.arguments);
  const output = { type: 'function_call_output', call_id: call.call_id, output: 'Rain, 7 degrees' };
  assert.ok((await respond([output], { tools: fields.tools, previous_response_id: whole.id })).output_text);
});

test('a text format of a response holds and is parsed', async () => {
  const format = openai.standardTextFormat(standard(RECORD, () => true), 'record');
  const response = await client.responses.parse({
    model: 'default', input: MIA, temperature: 0, max_output_tokens: 200, text: { format },
  });
  assert.deepEqual(Object.keys(response.output_parsed).sort(), ['age', 'name']);
});

test('errors are the classes of the client', async () => {
  await assert.rejects(new OpenAI({ ...settings, apiKey: 'wrong-key' }).models.list(), OpenAI.AuthenticationError);
  await assert.rejects(ask(APPLES, { temprature: 1 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.deepEqual([error.status, error.param, error.type], [400, 'temprature', 'invalid_request_error']);
    return true;
  });
  await assert.rejects(ask(APPLES, { temperature: -1, stream: true }), OpenAI.BadRequestError);
  await assert.rejects(ask(APPLES, { model: 'another-model' }), OpenAI.NotFoundError);
  await assert.rejects(respond(APPLES, { background: true }), OpenAI.BadRequestError);
  await assert.rejects(client.embeddings.create({ model: 'default', input: 'x' }), OpenAI.NotFoundError);
});

test('a stream that is aborted ends here and on the server', async () => {
  const before = await metric('fathom:aborted_requests_total');
  const stream = await ask(APPLES, { stream: true, max_tokens: 20000, ignore_eos: true });
  let chunks = 0;
  for await (const _ of stream) {
    if (++chunks === 3) stream.controller.abort();
  }
  assert.ok(chunks < 100);
  while ((await metric('fathom:aborted_requests_total')) === before) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const runner = client.chat.completions.stream(chat(APPLES, { max_tokens: 20000, ignore_eos: true }));
  runner.once('content', () => runner.abort());
  await assert.rejects(runner.done(), OpenAI.APIUserAbortError);
});
