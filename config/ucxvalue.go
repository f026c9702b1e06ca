package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// isDefault reports whether text means the default of v, in whatever spelling. The error is that
// of a text which UCX refuses too.
func (v *ucxVariable) isDefault(text string) (bool, error) {
	have, err := canonicalUCX(v.syntax, text)
	if err != nil {
		return false, fmt.Errorf("UCX refuses it too, it wants %s", v.syntax)
	}
	want, err := canonicalUCX(v.syntax, v.def)
	return err == nil && have == want, nil
}

var (
	ucxBandwidth = regexp.MustCompile(`^([0-9.]+)([KMGT]?)([Bb])(?:ps|/s|s)$`)
	ucxRange     = regexp.MustCompile(`^[0-9]+(-[0-9]+)?$`)
)

// canonicalUCX returns one spelling of all texts that mean the same value in a syntax of UCX.
func canonicalUCX(syntax, text string) (string, error) {
	text = clean(text)
	if _, element, ok := strings.Cut(syntax, " of: "); ok && strings.HasPrefix(syntax, "comma-separated list") {
		items := strings.Split(text, ",")
		for i, item := range items {
			c, err := canonicalUCX(element, item)
			if err != nil && text != "" {
				return "", err
			}
			items[i] = c
		}
		return strings.Join(items, ","), nil
	}
	is := func(prefixes ...string) bool {
		for _, p := range prefixes {
			if strings.HasPrefix(syntax, p) {
				return true
			}
		}
		return false
	}
	folded := strings.ToLower(text)
	if (folded == wordAuto || folded == wordInf) && strings.Contains(syntax, `"`+folded+`"`) {
		return folded, nil
	}
	switch {
	case is("memory units"):
		v, err := parseSize(text)
		return v.String(), err
	case is("time value"):
		d, err := parseDuration(text)
		return formatDuration(d), err
	case is("unsigned", "integer"):
		v, err := parseInt(text)
		if v == -1 && err == nil && is("unsigned") {
			v = math.MaxInt
		}
		return formatInt(v), err
	case is("<"):
		words := strings.Split(strings.Trim(syntax, "<>"), "|")
		if folded == "maybe" || folded == "try" && !slices.Contains(words, "try") {
			folded = map[bool]string{true: "try", false: wordAuto}[slices.Contains(words, "try")]
		}
		if (folded == "try" || folded == wordAuto) && slices.Contains(words, folded) {
			return folded, nil
		}
		v, err := parseBool(text)
		return formatBool(v), err
	case is("["):
		for word := range strings.SplitSeq(strings.Trim(syntax, "[]"), "|") {
			if strings.EqualFold(word, text) {
				return folded, nil
			}
		}
		return "", errSyntax
	case is("floating"):
		f, err := strconv.ParseFloat(text, 64)
		return strconv.FormatFloat(f, 'g', -1, 64), err
	case is("bandwidth"):
		m := ucxBandwidth.FindStringSubmatch(text)
		if m == nil {
			return "", errSyntax
		}
		f, err := strconv.ParseFloat(m[1], 64)
		if m[2] != "" {
			f *= float64(binaryPrefix(m[2][0]))
		}
		if m[3] == "b" {
			f /= 8
		}
		return strconv.FormatFloat(f, 'g', -1, 64), err
	case is("hex"):
		if !strings.HasPrefix(folded, "0x") {
			return "", errors.New("no hexadecimal number")
		}
		v, err := strconv.ParseUint(folded[2:], 16, 64)
		return strconv.FormatUint(v, 16), err
	case is("numbers range"):
		if !ucxRange.MatchString(text) {
			return "", errSyntax
		}
		return text, nil
	case is("system signal"):
		if _, err := strconv.Atoi(text); err != nil && strings.ContainsFunc(text, func(c rune) bool { return c < '0' || c > 'z' }) {
			return "", errSyntax
		}
		return strings.TrimPrefix(strings.ToUpper(text), "SIG"), nil
	}
	return text, nil
}
