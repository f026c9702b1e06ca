package main

import (
	"fmt"
	"regexp"
	"strings"
)

// allowance is one line of the allow-list: which tests may skip, and the reason. tests is a
// regular expression for all of "package/Test/sub", with the prefix "race:" or "arm64:" in such a
// run.
type allowance struct {
	tests  *regexp.Regexp
	reason string
}

// parseAllowed parses lines of "regexp reason..."; # begins a comment line.
func parseAllowed(text string) ([]allowance, error) {
	var list []allowance
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		expr, reason, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
		if reason = strings.TrimSpace(reason); reason == "" {
			return nil, fmt.Errorf("line %d: no reason after %s", i+1, expr)
		}
		re, err := regexp.Compile("^(?:" + expr + ")$")
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		list = append(list, allowance{re, reason})
	}
	return list, nil
}

// allows returns the reason why the test may skip, or "".
func allows(list []allowance, test string) string {
	for _, a := range list {
		if a.tests.MatchString(test) {
			return a.reason
		}
	}
	return ""
}
