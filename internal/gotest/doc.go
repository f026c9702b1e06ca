// Command gotest runs `go test -json` and prints a short log: the go command's summary line for
// each package, the output of failed tests, and each skipped test with its reason. A skip that is
// not in the allow-list fails the run, so that no test is disabled unnoticed.
//
// scripts/gotest starts it: `scripts/gotest -race ./...`. Start reading at run in main.go.
package main
