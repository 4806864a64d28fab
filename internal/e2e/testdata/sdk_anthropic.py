"""Lets Anthropic's SDK work through a tool loop, whole and streamed, and prints what came of it as one JSON object.

ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY say where.
"""

import json

import anthropic

client = anthropic.Anthropic(max_retries=0)
tools = [{"name": "bash", "description": "Runs a command.", "input_schema": {
    "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}]


def whole(**params):
    return client.messages.create(**params)


def streamed(**params):
    with client.messages.stream(**params) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text == "".join(b.text for b in message.content if b.type == "text"), (text, message)
    return message


def converse(ask):
    messages, answers = [{"role": "user", "content": "Do the steps."}], []
    while True:
        answer = ask(model="any", max_tokens=1000, system="You are a coding agent.", messages=messages, tools=tools)
        calls = [b for b in answer.content if b.type == "tool_use"]
        answers.append({
            "content": "".join(b.text for b in answer.content if b.type == "text"),
            "thought": "".join(b.thinking for b in answer.content if b.type == "thinking"),
            "calls": [{"name": b.name, "arguments": json.dumps(b.input)} for b in calls],
            "finish": answer.stop_reason,
            "prompt": answer.usage.input_tokens,
            "sampled": answer.usage.output_tokens,
        })
        if not calls:
            return answers
        messages.append({"role": "assistant", "content": answer.content})
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": b.id, "content": "done"} for b in calls]})


def refused():
    try:
        anthropic.Anthropic(api_key="nobody", max_retries=0).messages.create(
            model="any", max_tokens=10, messages=[{"role": "user", "content": "Hi"}])
    except anthropic.AuthenticationError as e:
        return e.status_code


print(json.dumps({
    "whole": converse(whole),
    "streamed": converse(streamed),
    "count": client.messages.count_tokens(model="any", messages=[{"role": "user", "content": "Hi"}]).input_tokens,
    "refused": refused(),
}))
