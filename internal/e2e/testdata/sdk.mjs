// Plays a fixed set of calls with the official OpenAI SDK and prints what came of them as one JSON object.
//
// OPENAI_BASE_URL and OPENAI_API_KEY say where, SDK_MODULES where the SDK is installed. sdk.py is its twin.

import { createRequire } from "node:module";

const { default: OpenAI } = createRequire(process.env.SDK_MODULES + "/")("openai");
const client = new OpenAI({ maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const tools = [{ type: "function", function: { name: "bash", description: "Runs a command.", parameters: {
  type: "object", properties: { command: { type: "string" } }, required: ["command"] } } }];
const seen = new Set(); // the paths of all fields that had a value

function note(value, at = "") {
  if (Array.isArray(value)) value.forEach((inner) => note(inner, at + "[]"));
  else if (value !== null && typeof value === "object") for (const key of Object.keys(value)) note(value[key], `${at}.${key}`);
  else if (value !== null && value !== undefined) seen.add(at);
}

const called = (c) => ({ id: c.id, name: c.function.name, arguments: c.function.arguments });

async function whole(params) {
  const answer = await client.chat.completions.create({ model, temperature: 0, ...params });
  note(answer);
  const { message, finish_reason } = answer.choices[0];
  return { content: message.content, calls: (message.tool_calls ?? []).map(called), finish: finish_reason, model: answer.model,
    usage: answer.usage };
}

async function streamed(params) {
  const out = { content: "", calls: [], finish: null, model: null, usage: null };
  for await (const chunk of await client.chat.completions.create({ model, temperature: 0, stream: true, ...params })) {
    note(chunk);
    out.model = chunk.model;
    out.usage = chunk.usage ?? out.usage;
    for (const choice of chunk.choices) {
      out.content += choice.delta.content ?? "";
      out.finish = choice.finish_reason ?? out.finish;
      for (const c of choice.delta.tool_calls ?? []) {
        if (c.index === out.calls.length) out.calls.push({ id: c.id, name: c.function.name, arguments: "" });
        out.calls[c.index].arguments += c.function.arguments ?? "";
      }
    }
  }
  return out;
}

// converse runs the tool loop to its end.
async function converse(ask, params = {}) {
  const messages = [{ role: "system", content: "You are a coding agent." }, { role: "user", content: "Do the steps." }];
  const answers = [];
  for (;;) {
    const answer = await ask({ messages, tools, ...params });
    answers.push({ ...answer, calls: answer.calls.map(({ name, arguments: args }) => ({ name, arguments: args })) });
    if (answer.calls.length === 0) return answers;
    messages.push({ role: "assistant", content: answer.content, tool_calls: answer.calls.map(
      ({ id, name, arguments: args }) => ({ id, type: "function", function: { name, arguments: args } })) });
    for (const c of answer.calls) messages.push({ role: "tool", tool_call_id: c.id, content: "done" });
  }
}

async function refused() {
  try {
    await whole({ messages: [{ role: "user", content: "Hi" }], n: 2 }); // greedy sampling has one answer only
  } catch (e) {
    if (e instanceof OpenAI.BadRequestError) return { status: e.status, message: e.message };
    throw e;
  }
  return null;
}

async function completion() {
  const params = { model, temperature: 0, prompt: "Once", max_tokens: 16 };
  const answer = await client.completions.create(params);
  note(answer);
  let text = "";
  for await (const chunk of await client.completions.create({ ...params, stream: true })) {
    note(chunk);
    text += chunk.choices.map((c) => c.text).join("");
  }
  return { whole: answer.choices[0].text, streamed: text, usage: answer.usage };
}

const result = {
  model,
  whole: await converse(whole),
  streamed: await converse(streamed, { stream_options: { include_usage: true } }),
  no_usage: await streamed({ messages: [{ role: "user", content: "Hi" }] }),
  refused: await refused(),
  completion: await completion(),
};
console.log(JSON.stringify({ ...result, fields: [...seen].sort() }));
