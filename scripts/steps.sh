# Sourced by the scripts that run a list of named steps, each a function
# step_NAME. Not to be run.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# run_steps NAME... runs every step, also after one has failed, with a line for
# each and its seconds; answers 1 if any failed. Unknown names are an error.
run_steps() {
	local name start failed=()
	for name in "$@"; do
		declare -F "step_$name" >/dev/null || { echo "$0: no step $name" >&2; return 2; }
	done
	for name in "$@"; do
		echo "== $name"
		start=$SECONDS
		# Not as the condition of an if: that would switch set -e off inside.
		(set -e; "step_$name")
		if [ $? -eq 0 ]; then
			echo "-- $name: ok, $((SECONDS - start)) s"
		else
			echo "-- $name: FAILED, $((SECONDS - start)) s"
			failed+=("$name")
		fi
	done
	[ ${#failed[@]} -eq 0 ] || { echo "$0: failed: ${failed[*]}" >&2; return 1; }
}

# silent CMD... succeeds if the command does and prints nothing; shows what it
# prints otherwise. For checkers that list faults and still exit 0.
silent() {
	local out
	out=$("$@" 2>&1) && [ -z "$out" ] || { echo "$out"; return 1; }
}

# quiet drops what go test says of packages with nothing to run; use in a pipe.
quiet() { grep -v 'no test files\|no tests to run' || true; }

tool() { go tool -modfile=tools/go.mod "$@"; }
golangci() { go tool -modfile=tools/golangci/go.mod golangci-lint "$@"; }

# product_packages lists all packages but the whole-program tests.
product_packages() { go list ./... | grep -v "^$(go list -m)/test\(/\|\$\)"; }

# Packages whose tests poll from two sides at once: beside another such package
# each gets a turn of the processor when its other side has not, and takes ten
# times as long. They run one after the other.
polling='/(transports|uct|ucp|perf|cmd/ucx_perftest|internal/cost|internal/instr|ucs/ring|ucs/async|examples)(/|$)'

# run_tests ARGS... -- PACKAGES... runs the tests of PACKAGES, those that poll
# one package at a time.
run_tests() {
	local args=() quiet polls failed=0
	while [ "$1" != -- ]; do args+=("$1"); shift; done
	shift
	quiet=$(printf '%s\n' "$@" | grep -vE "$polling") || true
	polls=$(printf '%s\n' "$@" | grep -E "$polling") || true
	[ -z "$quiet" ] || scripts/gotest "${args[@]}" $quiet || failed=1
	[ -z "$polls" ] || scripts/gotest -p=1 "${args[@]}" $polls || failed=1
	return $failed
}

# packages_with REGEXP GLOB lists those of the product's packages of which a file
# like GLOB has a line that matches.
packages_with() {
	local dir module
	module=$(go list -m)
	product_packages | while read -r package; do
		dir=.${package#"$module"}
		grep -qsE "$1" "$dir"/$2 && echo "$package"
	done
	return 0
}
