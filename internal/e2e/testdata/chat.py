"""Holds a streamed conversation of four turns with tools on offer, with the official OpenAI SDK.

OPENAI_BASE_URL and OPENAI_API_KEY say where. Prints how many turns it had; anything unexpected ends it with an error, and a
model that had nothing to say with 3.
"""

import sys

import openai

client = openai.OpenAI(max_retries=0)
model = client.models.list().data[0].id
tools = [{"type": "function", "function": {"name": "weather", "description": "Tells the weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
messages = [{"role": "system", "content": "You answer in one short sentence."}]
turns = 0
for question in ["What is a tree?", "And a forest?", "Name a colour.", "Thank you. Say goodbye."]:
    messages.append({"role": "user", "content": question})
    content, calls, finish = "", {}, None
    stream = client.chat.completions.create(model=model, messages=messages, tools=tools, stream=True, temperature=1, max_tokens=48)
    for chunk in stream:
        for choice in chunk.choices:
            assert choice.logprobs is None, choice
            finish = choice.finish_reason or finish
            content += choice.delta.content or ""
            for c in choice.delta.tool_calls or []:
                call = calls.setdefault(c.index, {"id": c.id, "type": "function", "function": {"name": c.function.name, "arguments": ""}})
                call["function"]["arguments"] += c.function.arguments or ""
    assert finish in ("stop", "length", "tool_calls"), finish
    if not content and not calls:
        sys.exit(3)
    answer = {"role": "assistant", "content": content}
    if calls:
        answer["tool_calls"] = list(calls.values())
    messages.append(answer)
    messages += [{"role": "tool", "tool_call_id": c["id"], "content": "sunny"} for c in calls.values()]
    turns += 1
print(turns)
