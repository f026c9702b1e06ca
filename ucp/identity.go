package ucp

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"sync"

	"github.com/goucx/goucx/uct"
)

// processID and hostID go into worker addresses.
var processID, hostID = sync.OnceValue(newID), sync.OnceValue(readHostID)

func newID() (u uct.UUID) {
	_, _ = rand.Read(u[:]) // never fails; see crypto/rand
	return u
}

// readHostID is the same for all processes of a running system: a digest of
// Linux's boot id, or of the host's name where there is none.
func readHostID() (u uct.UUID) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		name, err := os.Hostname()
		if err != nil {
			return newID()
		}
		text = []byte(name)
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(string(text))))
	copy(u[:], sum[:])
	return u
}

// shortID is how a worker is called in errors.
func shortID(u uct.UUID) string { return hex.EncodeToString(u[:4]) }
