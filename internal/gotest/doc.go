// Command gotest runs `go test -json` and prints what a log needs: the go
// command's own summary line per package, the output of what failed, and each
// skipped test with its reason. A skip that the allow-list does not name fails
// the run, so that a test cannot quietly stop testing.
//
// scripts/gotest starts it: `scripts/gotest -race ./...`. Start reading at run
// in main.go.
package main
