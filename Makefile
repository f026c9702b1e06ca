# One line per target; what takes longer to say stands in scripts/.
.DEFAULT_GOAL := help
.PHONY: help build plot demo quick check test test-rxe nightly ci bench bench-ucx compare-ucx instructions mutants shape cover fmt generate

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' Makefile

build: ## build the commands into bin/, static binaries without cgo
	CGO_ENABLED=0 go build -buildvcs=auto -o bin/ ./cmd/...

plot: ## build ucx_plot, a module of its own, into bin/ too
	CGO_ENABLED=0 go build -C cmd/ucx_plot -o ../../bin/ .

demo: ## build, then measure tag latency between two processes over shared memory
	@scripts/demo

quick: ## the inner loop, under a minute: vet and the short tests
	@scripts/quick

check: ## format, vet, linters, generated files, builds for other platforms
	@scripts/check

test: ## unit, import rules, gates, race where code is lock-free, whole-program tests, half a minute of chaos, a minute against Soft-RoCE
	@scripts/test

test-rxe: ## verbs against the kernel's Soft-RoCE, in a virtual machine: Debian only (10 min)
	@scripts/test rxe

nightly: ## all tests in their long form, all variants, full race, arm64 under qemu, fuzzing, mutants (3 h); log in docs/
	@scripts/nightly

ci: ## install what the checks need, then check and test: what CI runs (15 min)
	@.ci/run

bench: ## sizes and costs, then the Go benchmarks (COUNT=1)
	@scripts/bench

bench-ucx: ## side by side with UCX's ucx_perftest; tables in docs/perf/
	@scripts/bench-ucx

compare-ucx: ## each option, test and batch line through UCX's ucx_perftest and ours; table in docs/perftest.md
	@scripts/compare-ucx

instructions: ## instructions per operation by callgrind; table in docs/perf/instructions.md
	@scripts/instructions

mutants: ## break the code in one place at a time; a named test must notice each (3 min)
	@scripts/mutants

shape: ## measures of form: lines, functions, sizes of types and files, retired words
	@go run -buildvcs=false ./internal/shape

cover: ## statement coverage of the unit tests
	@scripts/cover

fmt: ## format all Go files in place
	@scripts/fmt

generate: ## run go generate
	go generate ./...
