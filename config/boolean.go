package config

import "strings"

// Ternary is the value of a switch with a third state: use the feature if possible.
type Ternary uint8

const (
	No  Ternary = iota // not used
	Yes                // required: its absence is an error
	Try                // used if possible
)

// Bool parses y, yes, on, 1, true and n, no, off, 0, false, in any case.
func Bool() Parser[bool] {
	return Parser[bool]{Parse: parseBool, Format: formatBool, Allowed: "y or n"}
}

// BoolOr parses what [Bool] parses, and word ("try", "auto"), which means [Try].
func BoolOr(word string) Parser[Ternary] {
	return Parser[Ternary]{
		Parse: func(text string) (Ternary, error) {
			if isWord(text, word) {
				return Try, nil
			}
			v, err := parseBool(text)
			if err != nil || !v {
				return No, err
			}
			return Yes, nil
		},
		Format: func(v Ternary) string {
			if v == Try {
				return word
			}
			return formatBool(v == Yes)
		},
		Allowed: "y, n or " + word,
	}
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
