package ucp

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/goucx/goucx/uct"
)

func newID() (u uct.UUID) {
	_, _ = rand.Read(u[:]) // never fails; see crypto/rand
	return u
}

// shortID is how a worker is called in errors.
func shortID(u uct.UUID) string { return hex.EncodeToString(u[:4]) }
