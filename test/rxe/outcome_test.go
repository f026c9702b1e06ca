package rxe

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// outcome is how a case of a test binary ended, in the words of package testing.
type outcome string

const (
	passed  outcome = "PASS"
	failed  outcome = "FAIL"
	skipped outcome = "SKIP"
)

// caseOutcomes are the outcomes of a test binary's cases by their full names. Tests that have subtests are no cases.
type caseOutcomes map[string]outcome

var caseEnd = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)

// outcomes reads the output of a test binary with -test.v.
func outcomes(stdout string) caseOutcomes {
	cases := caseOutcomes{}
	for _, m := range caseEnd.FindAllStringSubmatch(stdout, -1) {
		cases[m[2]] = outcome(m[1])
	}
	for name := range cases {
		for i, c := range name {
			if c == '/' {
				delete(cases, name[:i])
			}
		}
	}
	return cases
}

// number returns how many cases ended so.
func (c caseOutcomes) number(o outcome) (n int) {
	for _, got := range c {
		if got == o {
			n++
		}
	}
	return n
}

// count describes the outcomes in a line.
func (c caseOutcomes) count() string {
	return fmt.Sprintf("%d cases passed, %d failed, %d not applicable", c.number(passed), c.number(failed), c.number(skipped))
}

// compare returns the differences from a list of cases that fail, with their reasons. Listed cases that were not
// run are none.
func (c caseOutcomes) compare(listed map[string]string) (faults []string) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		why, isListed := listed[name]
		switch {
		case c[name] == failed && !isListed:
			faults = append(faults, name+" fails")
		case c[name] != failed && isListed:
			faults = append(faults, fmt.Sprintf("%s is listed as failing (%s), but: %s", name, why, c[name]))
		}
	}
	return faults
}

// readDeviations reads a list of cases that fail on the kernel's driver, with their reasons. Each line is
//
//	case  kernel  reason
//
// where kernel is the release that this was seen on, or its first numbers. Lines of other kernels than the one
// that runs do not count. A line that begins with # is a comment.
func readDeviations(list, release string) (map[string]string, error) {
	listed := map[string]string{}
	for i, line := range strings.Split(list, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(fields) < 3 {
			return nil, fmt.Errorf("line %d: want: case kernel reason: %q", i+1, line)
		}
		rest, ok := strings.CutPrefix(release, fields[1])
		if !ok || rest != "" && rest[0] != '.' && rest[0] != '-' {
			continue
		}
		if listed[fields[0]] != "" {
			return nil, fmt.Errorf("line %d: %s is listed twice", i+1, fields[0])
		}
		listed[fields[0]] = strings.Join(fields[2:], " ")
	}
	return listed, nil
}

const sampleOutput = `=== RUN   TestRC
=== RUN   TestRC/am
=== RUN   TestRC/am/short
--- FAIL: TestRC (0.10s)
    --- FAIL: TestRC/am (0.10s)
        --- PASS: TestRC/am/short (0.00s)
        --- FAIL: TestRC/am/zcopy (0.10s)
        --- SKIP: TestRC/am/keep (0.00s)
--- PASS: TestAlone (0.00s)
FAIL
`

// TestOutcomes: cases are read without the tests that contain them, and every difference from the list counts.
func TestOutcomes(t *testing.T) {
	cases := outcomes(sampleOutput)
	require.Equal(t, caseOutcomes{"TestRC/am/short": passed, "TestRC/am/zcopy": failed, "TestRC/am/keep": skipped, "TestAlone": passed}, cases)
	assert.Equal(t, "2 cases passed, 1 failed, 1 not applicable", cases.count())
	for list, want := range map[string][]string{
		"":                                {"TestRC/am/zcopy fails"},
		"TestRC/am/zcopy 6.1 it is late":  nil,
		"TestRC/am/zcopy 6.10 it is late": {"TestRC/am/zcopy fails"},
		"# x\n\nTestRC/am/zcopy 6 it is late\nTestRC/am/short 6.1.0-9 it loses\nTestRC/am/gone 6.1 x": {
			"TestRC/am/short is listed as failing (it loses), but: PASS",
		},
	} {
		listed, err := readDeviations(list, "6.1.0-9-amd64")
		require.NoError(t, err, list)
		assert.Equal(t, want, cases.compare(listed), list)
	}
	for _, list := range []string{"TestRC 6.1", "a 6.1 x\na 6 y"} {
		_, err := readDeviations(list, "6.1.0-9-amd64")
		assert.ErrorContains(t, err, "line ", list)
	}
}
