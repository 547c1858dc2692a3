// The official OpenAI client, unmodified, against a running server.
//   node openai_client.mjs http://127.0.0.1:8000 [--model NAME]
//   node openai_client.mjs --start PROGRAM [ARGUMENT...]   starts it; it prints "port N" and ends with its stdin
// Exit status: 0 passed, 1 failed, 77 skipped because the npm package `openai` is not installed.
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
import assert from 'node:assert/strict';

async function loadClient() {
  // From beside this file, or from the directory that SLUICE_NODE_MODULES names.
  const from = process.env.SLUICE_NODE_MODULES ?
      createRequire(pathToFileURL(`${process.env.SLUICE_NODE_MODULES}/x.js`)) : createRequire(import.meta.url);
  try {
    return from('openai');
  } catch (error) {
    if (error.code !== 'MODULE_NOT_FOUND') throw error;
    console.log('skipped: the npm package openai is not installed');
    process.exit(77);
  }
}

async function start(program, args) {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  for await (const line of createInterface({ input: child.stdout })) {
    if (line.startsWith('port ')) return { url: `http://127.0.0.1:${line.slice(5)}`, stop: () => child.stdin.end() };
  }
  throw new Error(`${program} ended before it said its port`);
}

const OpenAI = (await loadClient()).OpenAI;
const args = process.argv.slice(2);
const server = args[0] === '--start' ? await start(args[1], args.slice(2)) : { url: args[0], stop() {} };
const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
const model = args.includes('--model') ? args[args.indexOf('--model') + 1] : (await client.models.list()).data[0].id;
const messages = [{ role: 'user', content: 'Who are you?' }];
const chat = { model, messages, temperature: 0, max_tokens: 24 };

async function refused(call, status, code) {
  await assert.rejects(call, (error) => {
    assert.ok(error instanceof OpenAI.APIError, String(error));
    assert.equal(error.status, status);
    assert.equal(error.code, code);
    return true;
  });
}

const cases = {
  async 'models'() {
    const list = await client.models.list();
    assert.deepEqual(list.data.map((item) => item.id), [model]);
    assert.equal((await client.models.retrieve(model)).object, 'model');
    await refused(() => client.models.retrieve('gpt-4'), 404, 'model_not_found');
  },
  async 'chat'() {
    const { data, request_id } = await client.chat.completions.create(chat).withResponse();
    assert.ok(request_id);
    assert.match(data.id, /^chatcmpl-/);
    assert.equal(data.object, 'chat.completion');
    assert.equal(data.choices[0].message.role, 'assistant');
    assert.ok(data.choices[0].message.content.length > 0);
    assert.equal(data.usage.total_tokens, data.usage.prompt_tokens + data.usage.completion_tokens);
  },
  async 'chat, streamed, gives the same text and the usage'() {
    const whole = await client.chat.completions.create(chat);
    const stream = await client.chat.completions.create(
        { ...chat, stream: true, stream_options: { include_usage: true } });
    let text = '', reason = null, usage = null, role = null;
    for await (const chunk of stream) {
      if (chunk.usage) {
        assert.equal(chunk.choices.length, 0);
        usage = chunk.usage;
        continue;
      }
      role ??= chunk.choices[0].delta.role;
      text += chunk.choices[0].delta.content ?? '';
      reason = chunk.choices[0].finish_reason;
    }
    assert.equal(role, 'assistant');
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(reason, whole.choices[0].finish_reason);
    assert.deepEqual(usage, whole.usage);
  },
  async 'the stream helper puts a message together'() {
    const final = await client.chat.completions.stream(chat).finalChatCompletion();
    assert.equal(final.choices[0].message.content,
                 (await client.chat.completions.create(chat)).choices[0].message.content);
  },
  async 'stop strings are not shown'() {
    const whole = (await client.chat.completions.create(chat)).choices[0].message.content;
    const stop = whole.slice(2, 4);
    const cut = (await client.chat.completions.create({ ...chat, stop })).choices[0];
    assert.equal(cut.message.content, whole.slice(0, whole.indexOf(stop)));
    assert.equal(cut.finish_reason, 'stop');
    let streamed = '';
    for await (const chunk of await client.chat.completions.create({ ...chat, stop, stream: true })) {
      streamed += chunk.choices[0].delta.content ?? '';
    }
    assert.equal(streamed, cut.message.content);
  },
  async 'max_tokens ends an answer'() {
    const one = await client.chat.completions.create({ ...chat, max_tokens: 1 });
    assert.equal(one.choices[0].finish_reason, 'length');
    assert.equal(one.usage.completion_tokens, 1);
  },
  async 'n choices, and a seed repeats them'() {
    const request = { ...chat, temperature: 1, n: 3, seed: 7 };
    const texts = async () => (await client.chat.completions.create(request)).choices.map((c) => c.message.content);
    const first = await texts();
    assert.equal(first.length, 3);
    assert.deepEqual(await texts(), first);
  },
  async 'completions of text and of ids'() {
    const request = { model, temperature: 0, max_tokens: 8 };
    const batch = await client.completions.create({ ...request, prompt: ['Once', 'The'] });
    assert.deepEqual(batch.choices.map((choice) => choice.index), [0, 1]);
    let text = '';
    for await (const chunk of await client.completions.create({ ...request, prompt: 'Once', stream: true })) {
      text += chunk.choices[0].text;
    }
    assert.equal(text, batch.choices[0].text);
    const ids = await client.completions.create({ ...request, prompt: [65, 66, 67] });
    assert.equal(ids.usage.prompt_tokens, 3);
  },
  async 'errors'() {
    await refused(() => client.chat.completions.create({ ...chat, model: 'gpt-4' }), 404, 'model_not_found');
    await refused(() => client.chat.completions.create({ ...chat, messages: [] }), 400, 'empty_array');
    await refused(() => client.chat.completions.create({ ...chat, temperature: -1 }), 400, 'decimal_below_min_value');
    await refused(() => client.chat.completions.create({ ...chat, nonsense: 1 }), 400, 'unknown_parameter');
    await refused(() => client.chat.completions.create({ ...chat, logprobs: true }), 400, 'unsupported_parameter');
    await refused(() => client.completions.create({ model, prompt: 'x '.repeat(50000) }), 400,
                  'context_length_exceeded');
  },
  async 'a client that goes away'() {
    const stream = await client.chat.completions.create({ ...chat, max_tokens: 200, stream: true });
    for await (const chunk of stream) {
      assert.ok(chunk.choices);
      break;
    }
    assert.ok((await client.chat.completions.create({ ...chat, max_tokens: 1 })).id);
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    console.log(`ok      ${name}`);
  } catch (error) {
    ++failed;
    console.log(`FAILED  ${name}\n${error.stack}`);
  }
}
server.stop();
process.exit(failed === 0 ? 0 : 1);
