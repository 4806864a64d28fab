package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

// agent is the demo's harness: a small coding agent on OpenAI's own client. It knows nothing of the proxy; what it is
// given is a base URL and a key.
type agent struct {
	client openai.Client
	model  string
	say    teller
}

// teller tells a person what happens.
type teller func(what, format string, args ...any)

func newAgent(baseURL, key, model string, say teller) *agent {
	return &agent{
		client: openai.NewClient(option.WithBaseURL(baseURL), option.WithAPIKey(key)),
		model:  model, say: say,
	}
}

// maxSteps bounds a task, for models that never come to an end.
const maxSteps = 20

// loseAnswerOf is the step whose answer gets lost on the way.
const loseAnswerOf = 2

// play works on a task as coding agents do: a title for the conversation first, then tool calls until the model answers
// in text. The answer of one call is lost, and the call sent again.
func (a *agent) play(ctx context.Context, task string) error {
	title, err := a.ask(ctx, openai.ChatCompletionNewParams{
		Model: a.model,
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("Write a short title for the conversation."), openai.UserMessage(task),
		},
	})
	if err != nil {
		return err
	}
	a.say("title", "%s", title.Content)

	params := openai.ChatCompletionNewParams{
		Model: a.model,
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("You are a coding agent. Work with the shell tool."), openai.UserMessage(task),
		},
		Tools: []openai.ChatCompletionToolUnionParam{shellTool()},
	}
	for step := 1; step <= maxSteps; step++ {
		answer, err := a.ask(ctx, params)
		if err == nil && step == loseAnswerOf {
			a.say("lost", "%s  (the answer got lost, the client sends the call again)", answer.Content)
			answer, err = a.ask(ctx, params, option.WithHeader("X-Stainless-Retry-Count", "1"))
		}
		if err != nil {
			return err
		}
		params.Messages = append(params.Messages, answer.ToParam())
		if len(answer.ToolCalls) == 0 {
			a.say("answer", "%s", answer.Content)
			return nil
		}
		for _, call := range answer.ToolCalls {
			command, output := pretend(call.Function.Arguments)
			a.say(fmt.Sprintf("step %d", step), "%s  $ %s → %s", answer.Content, command, output)
			params.Messages = append(params.Messages, openai.ToolMessage(output, call.ID))
		}
	}
	return fmt.Errorf("the model did not come to an end in %d steps", maxSteps)
}

// ask makes one streamed call.
func (a *agent) ask(ctx context.Context, params openai.ChatCompletionNewParams, opts ...option.RequestOption) (openai.ChatCompletionMessage, error) {
	stream := a.client.Chat.Completions.NewStreaming(ctx, params, opts...)
	var answer openai.ChatCompletionAccumulator
	for stream.Next() {
		answer.AddChunk(stream.Current())
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		return openai.ChatCompletionMessage{}, err
	}
	if len(answer.Choices) == 0 {
		return openai.ChatCompletionMessage{}, errors.New("the model gave no answer")
	}
	return answer.Choices[0].Message, nil
}

func shellTool() openai.ChatCompletionToolUnionParam {
	return openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name:        "shell",
		Description: openai.String("Run a command in the project's directory"),
		Parameters: shared.FunctionParameters{
			"type":       "object",
			"properties": map[string]any{"command": map[string]any{"type": "string"}},
			"required":   []string{"command"},
		},
	})
}

// pretend plays the shell: the demo runs no command, it only knows what echo would say.
func pretend(arguments string) (command, output string) {
	var args struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal([]byte(arguments), &args); err != nil {
		return arguments, "the arguments are no JSON"
	}
	if text, ok := strings.CutPrefix(args.Command, "echo "); ok {
		return args.Command, text
	}
	return args.Command, "(not run: this is a demo)"
}
