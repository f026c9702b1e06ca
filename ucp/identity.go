package ucp

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"

	"github.com/goucx/goucx/uct"
)

func newID() (u uct.UUID) {
	_, _ = rand.Read(u[:]) // never fails; see crypto/rand
	return u
}

func randomWord() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // as in newID
	return binary.LittleEndian.Uint64(b[:])
}

// shortID is how a worker is called in errors.
func shortID(u uct.UUID) string { return hex.EncodeToString(u[:4]) }
