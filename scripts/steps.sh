# Sourced by the other scripts. Not to be run.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# The checkout may belong to another user, whom git does not trust.
[[ ${GOFLAGS:-} == *-buildvcs=* ]] || export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"

# run_steps NAME... runs every step step_NAME, also after one has failed, and prints the
# seconds of each and of all. It returns 1 if any failed. Unknown names are an error.
run_steps() {
	local name start began=$SECONDS failed=() TIMEFORMAT='-- processors: %U s user, %S s system'
	for name in "$@"; do
		declare -F "step_$name" >/dev/null || { echo "$0: no step $name" >&2; return 2; }
	done
	for name in "$@"; do
		echo "== $name"
		start=$SECONDS
		# Not as the condition of an if: that would switch set -e off inside.
		time (set -e; "step_$name")
		if [ $? -eq 0 ]; then
			echo "-- $name: ok, $((SECONDS - start)) s"
		else
			echo "-- $name: FAILED, $((SECONDS - start)) s"
			failed+=("$name")
		fi
	done
	echo "-- $0: $((SECONDS - began)) s"
	[ ${#failed[@]} -eq 0 ] || { echo "$0: failed: ${failed[*]}" >&2; return 1; }
}

# need COMMAND:PACKAGE... installs the Debian packages of the commands, or files, that are missing.
need() {
	local pair sudo= missing=()
	for pair in "$@"; do
		command -v "${pair%:*}" >/dev/null || [ -e "${pair%:*}" ] || missing+=("${pair#*:}")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	[ "$(id -u)" -eq 0 ] || sudo=sudo
	export DEBIAN_FRONTEND=noninteractive
	$sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# quiet drops the lines of go test about packages with nothing to run; use in a pipe.
quiet() { grep -v 'no test files\|no tests to run' || true; }

root=$PWD
tool() { go tool -modfile="$root/tools/go.mod" "$@"; }
golangci() { go tool -modfile="$root/tools/golangci/go.mod" golangci-lint "$@"; }

# nested_modules lists the folders of the modules below the root, code_modules those of them that
# have packages: not those of the tools' versions.
nested_modules() { find . -mindepth 2 \( -name testdata -o -name .git -o -name bin \) -prune -o -name go.mod -printf '%h\n' | sort; }
code_modules() {
	local dir
	for dir in $(nested_modules); do
		[ -z "$(find "$dir" -name '*.go' -print -quit)" ] || echo "$dir"
	done
}

# in_folders "DIR..." COMMAND... runs the command in each folder, also after it has failed in one.
in_folders() {
	local dir failed=0
	for dir in $1; do
		(cd "$dir" && "${@:2}") || { echo "in $dir"; failed=1; }
	done
	return $failed
}

# product_packages lists all packages but the whole-program tests.
product_packages() { go list ./... | grep -v "^$(go list -m)/test\(/\|\$\)"; }
