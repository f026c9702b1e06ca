package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

func TestDeviations(t *testing.T) {
	const list = `# a comment

data/send    fails  6.1  it loses messages
queue/resize n/a    6.1  no resize
data/write   fails  6.12 it loses writes
`
	text, err := deviationMatrix("x", list, "6.1.0-50-amd64")
	require.NoError(t, err)
	m, err := suitetest.ParseMatrix(text, caseNames())
	require.NoError(t, err)
	require.Equal(t, "kernel 6.1: it loses messages", m.Known("x", "data/send"))
	require.Empty(t, m.Known("x", "queue/resize"), "not a failure")
	require.Empty(t, m.Known("x", "data/write"), "of another kernel")
	for name, bad := range map[string]string{
		"no such case": "data/nothing fails 6.1 why",
		"no reason":    "data/send fails 6.1",
		"no outcome":   "data/send hangs 6.1 why",
		"twice":        "data/send fails 6.1 why\ndata/send fails 6.1.0 why",
	} {
		_, err := deviationMatrix("x", bad, "6.1.0")
		require.Error(t, err, name)
	}
}
