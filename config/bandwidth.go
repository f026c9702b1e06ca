package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Rate is a bandwidth in bytes per second.
type Rate float64

// Unbounded is the unlimited rate, written "inf".
var Unbounded = Rate(math.Inf(1))

// Bandwidth parses bytes or bits per second from minimum to maximum: a number; k, m, g or t
// (powers of 1024); B for bytes or b for bits; and s, ps or /s. Examples: 2200MBs, 12.5GBps,
// 100Gb/s. It accepts "inf" if maximum is [Unbounded].
//
// Source: ucs_config_sscanf_bw of UCX.
func Bandwidth(minimum, maximum Rate) Parser[Rate] {
	return Parser[Rate]{
		Parse: func(text string) (Rate, error) {
			v, err := parseRate(text)
			if err != nil {
				return 0, err
			}
			return v, between(v, minimum, maximum, Rate.String)
		},
		Format:  Rate.String,
		Allowed: fmt.Sprintf("a rate from %v to %v such as 2200MBs or 100Gbps", minimum, maximum),
	}
}

func parseRate(text string) (Rate, error) {
	if isWord(text, wordInf) {
		return Unbounded, nil
	}
	q, err := splitQuantity(text)
	if err != nil {
		return 0, err
	}
	unit, ok := rateUnit(q.unit)
	if !ok {
		return 0, errSyntax
	}
	f, err := q.float(unit)
	return Rate(f), err
}

// rateUnit returns the bytes per second of "GBps", "Mbs", "B/s".
func rateUnit(s string) (float64, bool) {
	unit := 1.0
	if s != "" && binaryPrefix(s[0]) != 0 {
		unit, s = float64(binaryPrefix(s[0])), s[1:]
	}
	switch {
	case strings.HasPrefix(s, "b"):
		unit /= 8
	case !strings.HasPrefix(s, "B"):
		return 0, false
	}
	switch s[1:] {
	case "s", "ps", "/s":
		return unit, true
	}
	return 0, false
}

// String returns an exact spelling: "2200MBs", "inf". Units are powers of two, so dividing by one
// is exact.
func (r Rate) String() string {
	if math.IsInf(float64(r), 1) {
		return wordInf
	}
	units := [...]string{"", "K", "M", "G", "T"}
	i := 0
	for r >= 1024 && i < len(units)-1 && r/1024 == Rate(math.Trunc(float64(r/1024))) {
		r /= 1024
		i++
	}
	return strconv.FormatFloat(float64(r), 'f', -1, 64) + units[i] + "Bs"
}
