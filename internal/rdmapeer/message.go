package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goucx/goucx/verbs"
)

// Sizes of the messages on the TCP connection, in bytes.
const (
	versionSize  = 16  // a version, filled up with NULs
	intSize      = 4   // a big-endian integer
	mtuSize      = 2   // the code of an MTU as a digit, and a NUL
	keySize      = 108 // perftest's address with a GID, filled up with NULs
	reportSize   = 8   // one of the five fields of a bandwidth report
	pingpongSize = 52  // the address of ibv_*_pingpong, with its NUL
)

// done is the last message of a connection. Its NUL is sent, too.
const done = "done\x00"

// errMessage: a message of the peer is malformed.
var errMessage = errors.New("malformed message")

// address is what a peer announces about a queue pair.
type address struct {
	LID      uint16 // the UDP port of a soft device; 0: 4791
	OutReads uint16 // the most READs and atomics that it executes at a time
	QPN      verbs.QPN
	PSN      verbs.PSN // first that it sends
	RKey     uint32
	VA       uint64 // of the memory that RKey belongs to
	GID      verbs.GID
	SRQN     uint32
}

// field is a hexadecimal number of a message: its name in errors and its digits.
type field struct {
	name   string
	digits int
}

// keyFields are the numbers of perftest's address. After VA the 16 bytes of the GID follow.
var keyFields = []field{{"LID", 4}, {"out_reads", 4}, {"QPN", 6}, {"PSN", 6}, {"rkey", 8}, {"address", 16}}

// appendKey appends perftest's form of a. It is 108 bytes long, as perftest is used with a GID,
// which RoCE always is.
func (a *address) appendKey(b []byte) []byte {
	end := len(b) + keySize
	b = fmt.Appendf(b, "%04x:%04x:%06x:%06x:%08x:%016x:", a.LID, a.OutReads, uint32(a.QPN), uint32(a.PSN), a.RKey, a.VA)
	for _, c := range a.GID {
		b = fmt.Appendf(b, "%02x:", c)
	}
	b = fmt.Appendf(b, "%08x:", a.SRQN)
	return append(b, make([]byte, end-len(b))...)
}

// parseKey parses perftest's form of an address.
func parseKey(b []byte) (a address, err error) {
	if len(b) != keySize {
		return a, fmt.Errorf("address of %d bytes, want %d: %w", len(b), keySize, errMessage)
	}
	text, _, _ := strings.Cut(string(b), "\x00")
	var v [6]uint64
	for i, f := range keyFields {
		if v[i], text, err = cutHex(text, f); err != nil {
			return a, err
		}
	}
	for i := range a.GID {
		c, rest, err := cutHex(text, field{fmt.Sprintf("byte %d of the GID", i), 2})
		if err != nil {
			return a, err
		}
		a.GID[i], text = byte(c), rest
	}
	srqn, rest, err := cutHex(text, field{"SRQ number", 8})
	if err != nil {
		return a, err
	}
	if rest != "" {
		return a, fmt.Errorf("%q behind the SRQ number: %w", rest, errMessage)
	}
	a.LID, a.OutReads, a.QPN, a.PSN = uint16(v[0]), uint16(v[1]), verbs.QPN(v[2]), verbs.PSN(v[3])
	a.RKey, a.VA, a.SRQN = uint32(v[4]), v[5], uint32(srqn)
	return a, nil
}

// cutHex cuts a number and its colon from the front of text.
func cutHex(text string, f field) (v uint64, rest string, err error) {
	word, rest, found := strings.Cut(text, ":")
	if !found {
		return 0, "", fmt.Errorf("%s: no colon behind %q: %w", f.name, word, errMessage)
	}
	v, err = parseHex(word, f)
	return v, rest, err
}

// parseHex parses exactly the digits of f.
func parseHex(word string, f field) (uint64, error) {
	if len(word) != f.digits || strings.ContainsAny(word, "+-_") {
		return 0, fmt.Errorf("%s %q, want %d hexadecimal digits: %w", f.name, word, f.digits, errMessage)
	}
	v, err := strconv.ParseUint(word, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%s %q, want %d hexadecimal digits: %w", f.name, word, f.digits, errMessage)
	}
	return v, nil
}

// appendPingpong appends the form of ibv_*_pingpong of a.
func (a *address) appendPingpong(b []byte) []byte {
	return fmt.Appendf(b, "%04x:%06x:%06x:%x\x00", a.LID, uint32(a.QPN), uint32(a.PSN), a.GID[:])
}

// parsePingpong parses the form of ibv_*_pingpong of an address.
func parsePingpong(b []byte) (a address, err error) {
	if len(b) != pingpongSize {
		return a, fmt.Errorf("address of %d bytes, want %d: %w", len(b), pingpongSize, errMessage)
	}
	text := string(b)
	var v [3]uint64
	for i, f := range []field{{"LID", 4}, {"QPN", 6}, {"PSN", 6}} {
		if v[i], text, err = cutHex(text, f); err != nil {
			return a, err
		}
	}
	gid, found := strings.CutSuffix(text, "\x00")
	raw, err := hex.DecodeString(gid)
	if !found || err != nil || len(raw) != len(a.GID) {
		return a, fmt.Errorf("GID %q, want %d hexadecimal digits and a NUL: %w", text, 2*len(a.GID), errMessage)
	}
	a.LID, a.QPN, a.PSN, a.GID = uint16(v[0]), verbs.QPN(v[1]), verbs.PSN(v[2]), verbs.GID(raw)
	return a, nil
}

// Protocol versions of perftest.
const (
	announcedVersion = "6.06"
	oldestPeer       = 5.70
)

// versionMark stands behind the NUL of the version, where perftest has zeros. It identifies another
// rdmapeer, which fills its buffers in the same way.
const versionMark = "rdmapeer"

// appendVersion appends the version that rdmapeer announces.
func appendVersion(b []byte) []byte {
	v := make([]byte, versionSize)
	copy(v, announcedVersion+"\x00"+versionMark)
	return append(b, v...)
}

// parseVersion returns the version that a peer announces, and whether the peer is an rdmapeer.
func parseVersion(b []byte) (version float64, same bool, err error) {
	text, rest, found := strings.Cut(string(b), "\x00")
	version, err = strconv.ParseFloat(text, 64)
	if !found || err != nil || strings.Trim(text, "0123456789.") != "" {
		return 0, false, fmt.Errorf("version %q, want one as %q: %w", text, announcedVersion, errMessage)
	}
	if version < oldestPeer {
		return 0, false, fmt.Errorf("version %s, want %.2f or later: %w", text, oldestPeer, errMessage)
	}
	return version, strings.HasPrefix(rest, versionMark), nil
}

// appendMTU appends an MTU code.
func appendMTU(b []byte, m verbs.MTU) []byte { return append(b, '0'+byte(m), 0) }

// parseMTU parses an MTU code.
func parseMTU(b []byte) (verbs.MTU, error) {
	if len(b) != mtuSize || b[0] < '0'+byte(verbs.MTU256) || b[0] > '0'+byte(verbs.MTU4096) || b[1] != 0 {
		return 0, fmt.Errorf("MTU code %q, want a digit from 1 to 5 and a NUL: %w", b, errMessage)
	}
	return verbs.MTU(b[0] - '0'), nil
}
