package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ucxOutput is what UCX 1.13.1's tool printed with an option, without blanks at ends of lines.
func ucxOutput(t *testing.T, option string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/ucx-1.13.1-" + option + ".txt")
	require.NoError(t, err)
	return string(text)
}

// The lines that scripts read have the form of UCX's: each expression matches a line of its output
// and a line of this command's.
func TestFormsOfUCX(t *testing.T) {
	for option, c := range map[string]struct {
		args  []string
		lines []string
	}{
		"v": {[]string{"-v"}, []string{`# Version \S+`, `# Git branch '<unknown>', revision \S+`, `# Configured with: -.*`}},
		"s": {[]string{"-s"}, []string{`# Timer frequency: \d+\.\d{3} MHz`, `# CPU vendor: \S+`, `# CPU model: .+`}},
		"b": {[]string{"-b"}, []string{`#define UCX_CONFIG_H`, `#define ENABLE_MT                 1`, `#define HAVE_TL_RC                1`, `#define uct_MODULES               "(:\w+)+"`, `#define UCX_CONFIGURE_FLAGS       "-.*"`}},
		"y": {[]string{"-y"}, []string{`UCP:`, `UCT:`, `    sizeof\([\w.]+\) = \.{2,} \d+`}},
		"T": {[]string{"-T"}, []string{`# System topology:`, `# \+------\+`, `# \| MB/s \|`}},
		"c": {[]string{"-c"}, []string{`UCX_LOG_LEVEL=WARN`, `UCX_\w+=\d+K`, `UCX_\w+=[yn]`, `UCX_\w+=inf`}},
		"p": {[]string{"-p", "-u", "t"}, []string{
			`# UCP context`, `#     component 0  :  self`, `#            md 0  :  component 0  self`, `#      resource 0  :  md 0  dev 0  flags -- self/memory0`,
			`# memory: -?\d+\.\d\dMB, file descriptors: \d+`, `# create time: \d+\.\d{3} ms`,
		}},
		"w": {[]string{"-w", "-u", "tar"}, []string{`# UCP worker '\w+:\d+'`, `#                 address: \d+ bytes`, `#                 atomics: 0:self.*`, `# memory: -?\d+\.\d\dMB, file descriptors: \d+`}},
		"m": {[]string{"-m", "4k", "-u", "t"}, []string{`# UCP memory allocation`, `#  allocated 4K at address 0x[0-9a-f]+( with \w+)?, pagesize: 4K`, `#  registered on: .*self.*`}},
		"e": {[]string{"-e", "-u", "tarm"}, []string{
			`# UCP endpoint`, `#               peer: .+`, `#                 lane\[0\]:  0:self/memory0\.0 md\[0\]          -> md\[0\]/self/sysdev\[255\] .*am.*`,
			`#                tag_send: 0\.\.<egr/short>\.\.\d+\.\.<.+>\.\.\(inf\)`, `#           tag_send_sync: 0\.\.<egr/short>\.\.\d+\.\.<egr/bcopy>\.\.\d+\.\.<rndv>\.\.\(inf\)`,
			`#                 am_send: 0\.\.<egr/short>.*<rndv>\.\.\(inf\)`, `#                  put\[0\]: 0\.\.<short>\.\..*\(inf\)`, `#                  get\[0\]: 0\.\.<.+>\.\.\(inf\)`,
		}},
	} {
		t.Run(option, func(t *testing.T) {
			out := info(t, c.args...)
			for _, line := range c.lines {
				form := regexp.MustCompile(`(?m)^` + line + ` *$`)
				assert.Regexp(t, form, ucxOutput(t, option), "UCX's")
				assert.Regexp(t, form, out)
			}
		})
	}
}

// Fields of UCX's -d that goucx lacks, with the reason.
var lackingFields = map[string]string{
	"ep address": "no interface connects endpoint to endpoint",
}

// -d has every field of UCX's, but for those that are listed.
func TestDevicesHaveUCXsFields(t *testing.T) {
	names := func(text string) map[string]bool {
		set := map[string]bool{}
		for line := range strings.Lines(text) {
			if name, ok := fieldName(line); ok {
				set[name] = true
			}
		}
		return set
	}
	ours := names(info(t, "-d"))
	for name := range names(ucxOutput(t, "d")) {
		if reason := lackingFields[name]; reason != "" {
			assert.False(t, ours[name], "%s is there, against the list: %s", name, reason)
			continue
		}
		assert.True(t, ours[name], "%s is lacking", name)
	}
	for _, words := range []string{"rkey_ptr is supported", "Connection manager: ", "max_conn_priv: "} {
		assert.Contains(t, ucxOutput(t, "d"), words)
		assert.Contains(t, info(t, "-d"), words)
	}
}
