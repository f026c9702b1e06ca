package rte

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucs/protocol"
)

// greetingFormat is the format of the greeting, and with it all records.
var greetingFormat = protocol.Format{Name: "greeting of ucx_perftest", Version: 3}

const (
	magic         = "goucxprf"
	offVersion    = len(magic)
	offFeatures   = offVersion + 1
	greetingBytes = offFeatures + 3 // two more are 0
)

// Errors that Dial and Accept wrap.
var (
	// ErrUCX: the other side is UCX's own ucx_perftest.
	ErrUCX = errors.New("it is UCX's own ucx_perftest, which speaks another protocol: run the same tool on both sides")
	// ErrForeign: the other side is not a benchmark.
	ErrForeign = errors.New("it does not use goucx's benchmark protocol")
	// ErrVersion: the other side uses another version of the protocol, or requires an unknown feature.
	ErrVersion = errors.New("protocol version mismatch")
)

// Identity identifies one side to the other.
type Identity struct {
	// Version of the program, for display.
	Version string `json:"version"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
}

// String returns "goucx 1.2 (pid 7 on node3)".
func (h Identity) String() string {
	return fmt.Sprintf("goucx %s (pid %d on %s)", h.Version, h.PID, h.Host)
}

func appendGreeting(b []byte) []byte {
	return append(append(b, magic...), greetingFormat.Version, 0, 0, 0)
}

// checkMagic checks the first bytes that the other side sent.
func checkMagic(b []byte) error {
	switch {
	case string(b[:len(magic)]) == magic:
		return nil
	case looksLikeUCX(b):
		return ErrUCX
	}
	return fmt.Errorf("%w: it begins with %q", ErrForeign, b[:len(magic)])
}

func checkVersion(b []byte) error {
	if err := greetingFormat.Check(b[offVersion], protocol.Features(b[offFeatures])); err != nil {
		return fmt.Errorf("%w: %w", ErrVersion, err)
	}
	return nil
}

// looksLikeUCX recognizes the first eight bytes of UCX's client. The client begins with its
// parameter block as it is in memory: the API (UCT 0, UCP 1, its daemon 2, undefined 3) and the
// command (about ten), as 32-bit words.
//
// Source: ucx_perf_params_t of UCX 1.13, observed on the wire.
func looksLikeUCX(b []byte) bool {
	const apis, commands = 4, 32
	return binary.LittleEndian.Uint32(b) < apis && binary.LittleEndian.Uint32(b[4:]) < commands
}
