// Command capture-proxy records what a coding agent and its model say to each other, token by token, and hands over one
// rollout document per session that a trainer can use.
//
//	capture-proxy demo                                       see it work, no engine needed
//	capture-proxy serve --upstream http://127.0.0.1:8000     the long-running proxy
//	capture-proxy run --upstream URL -- my-agent "the task"  one rollout of one agent in one command
//
// The files: [App] (app.go) is the proxy as a value, wired from a [Config]; serve, run and demo start one. Each command
// has a file of its own that parses, runs and prints. Flags, the environment and exit codes are the business of root.go,
// flags.go and exit.go.
package main

import "os"

func main() { os.Exit(execute(os.Args[1:])) }
