package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size in bytes.
type Bytes uint64

// Inf is the unlimited size, written "inf".
const Inf Bytes = math.MaxUint64

// Size parses bytes from minimum to maximum: a decimal number with a suffix k, m, g or t (powers of
// 1024) in any case, alone or as in KB or KiB, or a hexadecimal number after 0x. It accepts "inf" if
// maximum is [Inf].
//
// Source: ucs_str_to_memunits of UCX. Fractions ("1.5g"), KiB and 0x are additions of goucx.
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
	if digits, ok := strings.CutPrefix(strings.ToLower(clean(text)), "0x"); ok {
		v, err := strconv.ParseUint(digits, 16, 64)
		if errors.Is(err, strconv.ErrRange) || v == math.MaxUint64 {
			return 0, errOverflow
		} else if err != nil {
			return 0, errSyntax
		}
		return Bytes(v), nil
	}
	q, err := splitQuantity(text)
	if err != nil {
		return 0, err
	}
	unit := uint64(1)
	suffix := strings.TrimSuffix(strings.ToLower(q.unit), "b")
	if len(suffix) == 2 {
		suffix = strings.TrimSuffix(suffix, "i")
	}
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
