package suitetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatrixRefusesNonsense(t *testing.T) {
	for name, c := range map[string]struct{ text, fault string }{
		"columns":        {"case udp sim\ndata/send pass\n", "line 2: data/send: 1 columns, want 2"},
		"no row":         {"case udp\n", "data/send: no row"},
		"twice":          {"case udp\ndata/send pass\ndata/send pass\n", "line 3: data/send: twice"},
		"unknown case":   {"case udp\ndata/sent pass\n", "no such case"},
		"no reason":      {"case udp\ndata/send broken\n", `"broken" is neither`},
		"no fault":       {"case udp\ndata/send !broken\n", `"!broken" is neither`},
		"idle reason":    {"case udp\ndata/send pass\nlazy: because\n", "reason lazy: no case has it"},
		"empty reason":   {"case udp\ndata/send lazy\nlazy:\n", `"lazy" is neither`},
		"before columns": {"data/send pass\n", "columns, want 0"},
	} {
		_, err := ParseMatrix(c.text, []string{"data/send"})
		require.ErrorContains(t, err, c.fault, name)
	}
}

// TestMatrixHoldsOutcomes: every difference between table and outcome fails.
func TestMatrixHoldsOutcomes(t *testing.T) {
	m, err := ParseMatrix("case udp\ndata/send pass\ndata/read N1\ndata/write !bad\n\nN1: no\n!bad: it loses bytes\n",
		[]string{"data/send", "data/read", "data/write"})
	require.NoError(t, err)
	for _, c := range []struct{ fixture, name, reason, fault string }{
		{"udp", "data/send", "", ""},
		{"udp", "data/read", "some reason", ""},
		{"udp", "data/send", "some reason", "but it was not applicable: some reason"},
		{"udp", "data/read", "", "but it passed"},
		{"ibv", "data/send", "", "no column for ibv"},
	} {
		r := &Recorder{TB: t}
		m.Compare(r, c.fixture, c.name, c.reason)
		require.Equal(t, c.fault != "", r.Failed(), "%+v", c)
		require.True(t, strings.Contains(r.Text(), c.fault), r.Text())
	}
	r := &Recorder{TB: t}
	r.Fail() // failed anyhow: nothing to add
	m.Compare(r, "ibv", "data/send", "")
	require.Empty(t, strings.TrimSpace(r.Text()))
	require.Equal(t, "it loses bytes", m.Known("udp", "data/write"))
	require.Empty(t, m.Known("udp", "data/send"))
	require.Empty(t, m.Known("ibv", "data/write"))
}
