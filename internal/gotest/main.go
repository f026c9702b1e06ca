package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// allowFile is the allow-list, below the module's root.
const allowFile = ".ci/skips.txt"

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

// setting returns the name of a special run, "" for a plain one. Skips are allowed for each
// setting separately.
func setting(args []string, goarch string) string {
	switch {
	case slices.Contains(args, "-race"):
		return "race:"
	case goarch != "" && goarch != runtime.GOARCH:
		return goarch + ":"
	default:
		return ""
	}
}

// run requires the module's root as the working directory; it passes args to go test. The first of
// them may be -C=DIR, for a nested module.
func run(args []string, stdout, stderr io.Writer) error {
	text, err := os.ReadFile(filepath.FromSlash(allowFile))
	if err != nil {
		return err
	}
	allowed, err := parseAllowed(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", allowFile, err)
	}
	module, err := exec.Command("go", "list", "-m").Output()
	if err != nil {
		return fmt.Errorf("go list -m: %w", err)
	}

	line := append([]string{"test", "-json"}, args...)
	if len(args) > 0 && strings.HasPrefix(args[0], "-C=") {
		line[1], line[2] = line[2], line[1] // the go command wants it first
	}
	cmd := exec.Command("go", line...)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	r := newReport(stdout, string(module), setting(args, os.Getenv("GOARCH")), allowed)
	return errors.Join(r.read(out), cmd.Wait(), r.finish())
}
