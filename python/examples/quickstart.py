from openai import OpenAI

from capture_proxy import Session

shell = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}}
messages = [{"role": "user", "content": "List the files here."}]

with Session(group="task-7") as session:  # the proxy at http://127.0.0.1:8100, or at $CAPTURE_PROXY_URL
    llm = OpenAI(base_url=session.openai_base_url, api_key=session.key)
    while True:
        answer = llm.chat.completions.create(model="policy", messages=messages, tools=[shell]).choices[0].message
        messages.append(answer.to_dict())
        if not answer.tool_calls:
            break
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "README.md"} for call in answer.tool_calls]
    session.score(1.0)

for row in session.rollout.training_rows():
    print(f"{row.n_turns} turns, {len(row.input_ids)} tokens, of which {sum(row.loss_mask)} are trained")
