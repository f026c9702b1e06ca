package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The scripts and the manual have every option that runs.
func TestCompletions(t *testing.T) {
	for what, option := range map[string]string{"--completion bash": "--", "--completion zsh": "--", "--completion fish": "-l ", "--man": "\\-\\-"} {
		var out, errs bytes.Buffer
		require.NoError(t, run(strings.Fields(what), &out, &errs), what)
		for _, g := range table(&options{}) {
			for _, r := range g.rows {
				name := option + r.name
				if what == "--man" {
					name = strings.ReplaceAll(option, "\\-", "-") + r.name
					name = strings.ReplaceAll(name, "-", "\\-")
				}
				assert.Contains(t, out.String(), name, what)
			}
		}
	}
	var out, errs bytes.Buffer
	require.ErrorContains(t, run([]string{"--completion", "csh"}, &out, &errs), "not one of bash zsh fish")
}
