package ucttest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatrixRefusesNonsense(t *testing.T) {
	for name, c := range map[string]struct{ text, fault string }{
		"columns":        {"case self shm\nam/short pass\n", "line 2: am/short: 1 columns, want 2"},
		"twice":          {"case self\nam/short pass\nam/short pass\n", "line 3: am/short: twice"},
		"unknown case":   {"case self\nam/shirt pass\n", "no such case"},
		"no reason":      {"case self\nam/short broken\n", `"broken" is neither`},
		"idle reason":    {"case self\nam/short pass\nlazy: because\n", "reason lazy: no case has it"},
		"empty reason":   {"case self\nam/short lazy\nlazy:\n", `"lazy" is neither`},
		"before columns": {"am/short pass\n", "columns, want 0"},
	} {
		_, err := parseMatrix(c.text)
		require.ErrorContains(t, err, c.fault, name)
	}
}

// TestMatrixHoldsOutcomes: every difference between table and outcome fails.
func TestMatrixHoldsOutcomes(t *testing.T) {
	m, err := parseMatrix("case self\nam/short pass\nam/keep N1\n\nN1: no\n")
	require.NoError(t, err)
	for _, c := range []struct{ transport, name, reason, fault string }{
		{"self", "am/short", "", ""},
		{"self", "am/keep", "some reason", ""},
		{"self", "am/short", "some reason", "but it was not applicable: some reason"},
		{"self", "am/keep", "", "but it passed"},
		{"rc", "am/short", "", "no column for transport rc"},
	} {
		r := &recorder{TB: t}
		m.compare(r, c.transport, c.name, c.reason)
		require.Equal(t, c.fault != "", r.Failed(), "%+v", c)
		require.True(t, strings.Contains(r.text(), c.fault), r.text())
	}
	r := &recorder{TB: t}
	r.Fail() // failed anyhow: nothing to add
	m.compare(r, "rc", "am/short", "")
	require.Empty(t, strings.TrimSpace(r.text()))
}

// TestMatrixIsComplete: the checked-in table has a row for each case.
func TestMatrixIsComplete(t *testing.T) { readMatrix(t) }
