package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Forever is the unlimited duration, written "inf".
const Forever time.Duration = math.MaxInt64

// durationUnits lists UCX's units, the longest first.
var durationUnits = [...]struct {
	name string
	unit time.Duration
}{
	{"m", time.Minute},
	{"s", time.Second},
	{"ms", time.Millisecond},
	{"us", time.Microsecond},
	{"ns", time.Nanosecond},
}

// Duration parses a time from minimum to maximum in ns, us, ms, s or m. A number without a unit is
// in seconds. "inf" denotes maximum. Fractions are rounded to a nanosecond.
//
// Source: ucs_config_sscanf_time_units of UCX.
func Duration(minimum, maximum time.Duration) Parser[time.Duration] {
	allowed := fmt.Sprintf("a time from %s to %s in ns, us, ms, s or m", formatDuration(minimum), formatDuration(maximum))
	if maximum != Forever {
		allowed += ", inf for the longest"
	}
	return Parser[time.Duration]{
		Parse: func(text string) (time.Duration, error) {
			if isWord(text, wordInf) {
				return maximum, nil
			}
			d, err := parseDuration(text)
			if err != nil {
				return 0, err
			}
			return d, between(d, minimum, maximum, formatDuration)
		},
		Format:  formatTime,
		Allowed: allowed,
	}
}

func parseDuration(text string) (time.Duration, error) {
	if isWord(text, wordInf) {
		return Forever, nil
	}
	q, err := splitQuantity(text)
	if err != nil {
		return 0, err
	}
	if q.unit == "" {
		q.unit = "s"
	}
	for _, u := range durationUnits {
		if strings.EqualFold(q.unit, u.name) {
			ns, err := q.scale(uint64(u.unit), math.MaxInt64-1)
			return time.Duration(ns), err
		}
	}
	return 0, errSyntax
}

// formatTime returns UCX's spelling, microseconds with two decimals: "2000000.00us". Where these are
// not exact it has more, and none where a fraction would not be read back.
func formatTime(d time.Duration) string {
	switch {
	case d == Forever:
		return wordInf
	case d > 1<<53:
		return strconv.FormatInt(int64(d), 10) + "ns"
	}
	decimals := 2
	if d%(10*time.Nanosecond) != 0 {
		decimals = 3
	}
	return strconv.FormatFloat(float64(d)/1e3, 'f', decimals, 64) + "us"
}

// formatDuration returns the exact spelling in the longest unit that divides d.
func formatDuration(d time.Duration) string {
	if d == Forever {
		return wordInf
	}
	if d == 0 {
		return "0"
	}
	for _, u := range durationUnits {
		if d%u.unit == 0 {
			return strconv.FormatInt(int64(d/u.unit), 10) + u.name
		}
	}
	return "" // unreachable: every duration is a multiple of a nanosecond
}
