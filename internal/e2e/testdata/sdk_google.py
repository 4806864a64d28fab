"""Lets Google's SDK work through a tool loop, whole and streamed, and prints what came of it as one JSON object.

GOOGLE_GEMINI_BASE_URL and GEMINI_API_KEY say where.
"""

import json
import os

from google import genai
from google.genai import errors, types

url = os.environ["GOOGLE_GEMINI_BASE_URL"]
client = genai.Client(api_key=os.environ["GEMINI_API_KEY"], http_options=types.HttpOptions(base_url=url))
config = types.GenerateContentConfig(
    system_instruction="You are a coding agent.",
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    tools=[types.Tool(function_declarations=[types.FunctionDeclaration(
        name="bash", description="Runs a command.",
        parameters={"type": "OBJECT", "properties": {"command": {"type": "STRING"}}, "required": ["command"]})])])


def whole(contents):
    answer = client.models.generate_content(model="any", contents=contents, config=config)
    return answer.candidates[0].content.parts, answer.candidates[0].finish_reason, answer.usage_metadata


def streamed(contents):
    parts, finish, usage = [], None, None
    for chunk in client.models.generate_content_stream(model="any", contents=contents, config=config):
        usage = chunk.usage_metadata or usage
        for candidate in chunk.candidates or []:
            parts += (candidate.content.parts if candidate.content else None) or []
            finish = candidate.finish_reason or finish
    return parts, finish, usage


def converse(ask):
    contents, answers = [types.UserContent("Do the steps.")], []
    while True:
        parts, finish, usage = ask(contents)
        calls = [p.function_call for p in parts if p.function_call]
        answers.append({
            "content": "".join(p.text for p in parts if p.text and not p.thought),
            "thought": "".join(p.text for p in parts if p.text and p.thought),
            "calls": [{"name": c.name, "arguments": json.dumps(c.args)} for c in calls],
            "finish": finish.value,
            "prompt": usage.prompt_token_count,
            "sampled": usage.candidates_token_count + (usage.thoughts_token_count or 0),
        })
        if not calls:
            return answers
        contents.append(types.ModelContent(parts))
        contents.append(types.UserContent([types.Part(function_response=types.FunctionResponse(
            id=c.id, name=c.name, response={"output": "done"})) for c in calls]))


def refused():
    stranger = genai.Client(api_key="nobody", http_options=types.HttpOptions(base_url=url))
    try:
        stranger.models.generate_content(model="any", contents="Hi")
    except errors.ClientError as e:
        return e.code


print(json.dumps({
    "whole": converse(whole),
    "streamed": converse(streamed),
    "count": client.models.count_tokens(model="any", contents="Hi").total_tokens,
    "refused": refused(),
}))
