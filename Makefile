# The everyday commands. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help build test race lint fuzz soak bench smoke cost ci night clean

help: ## list these commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

build: ## build bin/holdfast
	go build -o bin/holdfast ./cmd/holdfast

test: ## all tests, of all modules
	go test -p $$((2 * $$(nproc))) work

race: ## all tests with the race detector (slow)
	go test -race -short work

lint: ## format, vet, staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet work
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 $$(go list work)

fuzz: ## every fuzz target for a minute
	.ci/fuzz 1m

soak: ## an hour of overwrites, deletes, reads and kills, on data four times the memory; as root
	go run ./cmd/holdfast soak --for 1h

bench: ## study 1 on this machine, about 90 seconds
	go run ./cmd/holdfast bench

smoke: ## every workload once, a few seconds
	go run ./cmd/holdfast bench smoke

cost: ## what the contract and the store add to an engine (Go benchmarks)
	go test -run='^$$' -bench=. -benchmem ./engine/... ./engine/all ./store/...

ci: ## everything that must hold before a change lands
	.ci/run

night: ## what takes hours: fuzzing, races, crashes, simulations, the OpenAPI document and clients made of it
	.ci/night

clean: ## remove what was built
	rm -rf bin
