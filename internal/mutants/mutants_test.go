package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each mutant of the list can be applied to the tree as it is.
func TestAllApply(t *testing.T) {
	read := func(file string) ([]byte, error) { return os.ReadFile(filepath.Join("..", "..", file)) }
	require.NoError(t, applyAll(all(), read))
	names := map[string]bool{}
	for _, m := range all() {
		assert.False(t, names[m.name], "twice: %s", m.name)
		assert.NotEqual(t, m.old, m.new, m.name)
		names[m.name] = true
	}
	assert.GreaterOrEqual(t, len(names), 20)
}

func TestApply(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		m                mutant
	}{
		{"replaced", "a b c", "a x c", mutant{old: "b", new: "x"}},
		{"gone", "a c", "", mutant{old: "b", new: "x"}},
		{"more than one", "b b", "", mutant{old: "b", new: "x"}},
		{"as often as it says", "b b", "x x", mutant{old: "b", new: "x", times: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.m.apply(c.text)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.want == "", err != nil)
		})
	}
}

func TestJudge(t *testing.T) {
	failed := errors.New("exit status 1")
	for _, c := range []struct {
		name, out string
		err       error
		want      outcome
	}{
		{"passed", "ok", nil, survived},
		{"failed", "--- FAIL: TestX\nFAIL", failed, killed},
		{"hung", "panic: test timed out after 1m30s\nFAIL", failed, hung},
		{"does not compile", "FAIL x [build failed]\nFAIL", failed, invalid},
		{"no tool", "", failed, invalid},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, classify(c.out, c.err)) })
	}
}

func TestChoose(t *testing.T) {
	ms := func() []mutant { return []mutant{{name: "skip the CRC"}, {name: "skip the bounds"}} }
	assert.Len(t, choose(ms(), nil), 2)
	assert.Len(t, choose(ms(), []string{"bounds"}), 1)
	assert.Empty(t, choose(ms(), []string{"length"}))
}
