package config

import "strings"

// Bool parses y, yes, on, 1, true and n, no, off, 0, false, in any case.
func Bool() Parser[bool] {
	return Parser[bool]{Parse: parseBool, Format: formatBool, Allowed: "y or n"}
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(clean(text)) {
	case "y", "yes", "on", "1", "true":
		return true, nil
	case "n", "no", "off", "0", "false":
		return false, nil
	}
	return false, errSyntax
}

func formatBool(v bool) string {
	if v {
		return "y"
	}
	return "n"
}
