"""Plays a fixed set of calls with the official OpenAI SDK and prints what came of them as one JSON object.

OPENAI_BASE_URL and OPENAI_API_KEY say where. sdk.mjs is its twin.
"""

import json

import openai

client = openai.OpenAI(max_retries=0)
model = client.models.list().data[0].id
tools = [{"type": "function", "function": {"name": "bash", "description": "Runs a command.", "parameters": {
    "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}}]
seen = []  # everything the SDK gave us, as JSON


def paths(value, at=""):
    """Yields the path of every field that has a value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, f"{at}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, at + "[]")
    elif value is not None:
        yield at


def whole(**params):
    answer = client.chat.completions.create(model=model, temperature=0, **params)
    seen.append(answer.to_dict())
    message = answer.choices[0].message
    calls = [{"id": c.id, "name": c.function.name, "arguments": c.function.arguments} for c in message.tool_calls or []]
    return {"content": message.content, "calls": calls, "finish": answer.choices[0].finish_reason, "model": answer.model,
            "usage": answer.usage.to_dict()}


def streamed(**params):
    out = {"content": "", "calls": [], "finish": None, "model": None, "usage": None}
    for chunk in client.chat.completions.create(model=model, temperature=0, stream=True, **params):
        seen.append(chunk.to_dict())
        out["model"] = chunk.model
        if chunk.usage:
            out["usage"] = chunk.usage.to_dict()
        for choice in chunk.choices:
            out["content"] += choice.delta.content or ""
            out["finish"] = choice.finish_reason or out["finish"]
            for c in choice.delta.tool_calls or []:
                if c.index == len(out["calls"]):
                    out["calls"].append({"id": c.id, "name": c.function.name, "arguments": ""})
                out["calls"][c.index]["arguments"] += c.function.arguments or ""
    return out


def converse(ask, **params):
    """Runs the tool loop to its end."""
    messages = [{"role": "system", "content": "You are a coding agent."}, {"role": "user", "content": "Do the steps."}]
    answers = []
    while True:
        answer = ask(messages=messages, tools=tools, **params)
        answers.append(dict(answer, calls=[{k: c[k] for k in ("name", "arguments")} for c in answer["calls"]]))
        if not answer["calls"]:
            return answers
        messages.append({"role": "assistant", "content": answer["content"], "tool_calls": [
            {"id": c["id"], "type": "function", "function": {k: c[k] for k in ("name", "arguments")}} for c in answer["calls"]]})
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": "done"} for c in answer["calls"]]


def refused():
    try:
        whole(messages=[{"role": "user", "content": "Hi"}], n=2)  # greedy sampling has one answer only
    except openai.BadRequestError as e:
        return {"status": e.status_code, "message": e.message}


def completion():
    answer = client.completions.create(model=model, temperature=0, prompt="Once", max_tokens=16)
    seen.append(answer.to_dict())
    text = ""
    for chunk in client.completions.create(model=model, temperature=0, prompt="Once", max_tokens=16, stream=True):
        seen.append(chunk.to_dict())
        text += "".join(c.text for c in chunk.choices)
    return {"whole": answer.choices[0].text, "streamed": text, "usage": answer.usage.to_dict()}


print(json.dumps({
    "model": model,
    "whole": converse(whole),
    "streamed": converse(streamed, stream_options={"include_usage": True}),
    "no_usage": streamed(messages=[{"role": "user", "content": "Hi"}]),
    "refused": refused(),
    "completion": completion(),
    "fields": sorted({p for answer in seen for p in paths(answer)}),
}))
