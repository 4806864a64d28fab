# What a developer does every day. Everything else is go's own commands, and ./test.

.PHONY: build test lint unit fuzz e2e python trainers harnesses demo clean

build: # the binary, static, as the image has it
	CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o bin/capture-proxy ./cmd/capture-proxy

test: # everything
	./test

lint unit fuzz e2e python: # one part of it
	./test $@

trainers: # exports, read by the trainers' own loaders; those that need torch too when TORCH names their environment
	./test trainers
ifdef TORCH
	go build -o bin/capture-proxy ./cmd/capture-proxy
	export/format/testdata/install_torch.sh $(TORCH)
	FORMATS="verl trl-sft trl-async skyrl nemo-gym areal atropos miles" export/format/testdata/check_loaders.sh bin/capture-proxy $(TORCH) ../shared/trainers/loaders
endif

harnesses: # every known agent, measured: the table of docs/harnesses.md
	./test harnesses

demo: # one task with the built-in engine and agent
	go run ./cmd/capture-proxy demo

clean:
	rm -rf bin capture-data
