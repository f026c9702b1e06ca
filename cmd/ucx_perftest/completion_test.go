package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/cmdline"
)

// The scripts and the manual have every option that runs.
func TestCompletions(t *testing.T) {
	for shell := range strings.FieldsSeq(cmdline.Shells + " man") {
		args := []string{"--completion", shell}
		if shell == "man" {
			args = []string{"--man"}
		}
		out, _, err := command(args...)
		require.NoError(t, err)
		for _, g := range groups {
			for _, r := range g.carried() {
				name := "--" + r.long
				switch shell {
				case "fish":
					name = "-l " + r.long
				case "man":
					name = strings.ReplaceAll(name, "-", "\\-")
				}
				assert.Contains(t, out, name, shell)
			}
		}
		assert.Contains(t, out, "tag_sync_lat", shell)
	}
	_, _, err := command("--completion", "csh")
	require.ErrorContains(t, err, "known are bash zsh fish")
	assert.Equal(t, 2, exitCode(err))
}

func TestBashCompletes(t *testing.T) {
	script, _, err := command("--completion", "bash")
	require.NoError(t, err)
	for line, want := range map[string]string{
		"-t tag_l": "tag_lat", "--test ucp_am": "ucp_am_lat ucp_am_bw", "-M mu": "multi", "--stamp": "--stamp-each", "-s 8": "", "-l --completion b": "bash",
	} {
		words := "COMP_WORDS=(ucx_perftest " + line + ")\nCOMP_CWORD=$((${#COMP_WORDS[@]}-1))\n_ucx_perftest\necho ${COMPREPLY[@]}\n"
		out, err := exec.Command("bash", "-c", script+words).CombinedOutput()
		require.NoError(t, err)
		assert.Equal(t, want, strings.TrimSpace(string(out)), line)
	}
}
