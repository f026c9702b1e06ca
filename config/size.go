package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size in bytes.
type Bytes uint64

// Inf is the unlimited size, written "inf".
const Inf Bytes = math.MaxUint64

// Size parses bytes from minimum to maximum. A suffix k, m, g or t (powers of 1024), with or
// without b, is allowed in any case. It accepts "inf" if maximum is [Inf].
//
// Source: ucs_str_to_memunits of UCX. Fractions ("1.5g") are an addition of goucx.
func Size(minimum, maximum Bytes) Parser[Bytes] {
	return Parser[Bytes]{
		Parse: func(text string) (Bytes, error) {
			v, err := parseSize(text)
			if err != nil {
				return 0, err
			}
			return v, between(v, minimum, maximum, Bytes.String)
		},
		Format:  Bytes.String,
		Allowed: fmt.Sprintf("bytes from %v to %v, with suffix k, m, g or t", minimum, maximum),
	}
}

func parseSize(text string) (Bytes, error) {
	if isWord(text, wordInf) {
		return Inf, nil
	}
	q, err := splitQuantity(text)
	if err != nil {
		return 0, err
	}
	unit := uint64(1)
	suffix := strings.TrimSuffix(strings.ToLower(q.unit), "b")
	if len(suffix) == 1 {
		unit = binaryPrefix(suffix[0])
	}
	if len(suffix) > 1 || unit == 0 {
		return 0, errSyntax
	}
	v, err := q.scale(unit, math.MaxUint64-1)
	return Bytes(v), err
}

// String returns UCX's spelling, the shortest exact one: "8K", "1000", "inf".
func (s Bytes) String() string {
	if s == Inf {
		return wordInf
	}
	suffixes := [...]string{"", "K", "M", "G", "T"}
	i := 0
	for s != 0 && s%1024 == 0 && i < len(suffixes)-1 {
		s /= 1024
		i++
	}
	return strconv.FormatUint(uint64(s), 10) + suffixes[i]
}
