# What a developer does every day. Everything else is go's own commands, and ./test.

.PHONY: build test lint unit fuzz chaos kills vuln e2e python trainers harnesses demo clean

build: # the binary, static, as the image has it
	CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o bin/capture-proxy ./cmd/capture-proxy

test: # everything
	./test

lint unit e2e python: # one part of it
	./test $@

FUZZ_TIME ?= 2m

fuzz: # every fuzz target, for FUZZ_TIME each
	FUZZ_TIME=$(FUZZ_TIME) ./test fuzz

chaos: # a hostile world, for long: every fault in every dialect, many times over; prints how often
	CHAOS_ROUNDS=$${CHAOS_ROUNDS:-20} go test -race -count=1 -timeout 60m -v ./internal/chaos

kills: # the real proxy killed 200 times under load
	KILL_ROUNDS=200 ./test TestKilledUnderLoad

vuln: # known vulnerabilities of what is linked in; needs its database
	go run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ./...

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
