# What a developer does every day. Everything else is go's own commands, and ./test.

.PHONY: build test lint unit fuzz e2e harnesses demo clean

build: # the binary, static, as the image has it
	CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o bin/capture-proxy ./cmd/capture-proxy

test: # everything
	./test

lint unit fuzz e2e: # one part of it
	./test $@

harnesses: # every known agent, measured: the table of docs/harnesses.md
	./test harnesses

demo: # one task with the built-in engine and agent
	go run ./cmd/capture-proxy demo

clean:
	rm -rf bin capture-data
