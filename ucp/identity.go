package ucp

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"

	"github.com/goucx/goucx/ucs/platform"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// workerSeq counts the workers of the process.
var workerSeq atomic.Uint32

// newWorkerID returns the id of a new worker. It equals the process's UUID but for the first
// four bytes. So package wireup stores the rest once for all workers of a process.
func newWorkerID() uct.UUID {
	u := uct.UUID(platform.ProcessID())
	own := binary.LittleEndian.Uint32(u[:]) + workerSeq.Add(1)
	binary.LittleEndian.PutUint32(u[:], own)
	return u
}

// contextSeq counts the contexts of the process.
var contextSeq atomic.Uint32

func newContextID() wireup.ContextID {
	return wireup.ContextID{Process: platform.ProcessID(), Context: contextSeq.Add(1)}
}

func randomWord() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails; see crypto/rand
	return binary.LittleEndian.Uint64(b[:])
}

// shortID returns the name of a worker in errors.
func shortID(u uct.UUID) string { return hex.EncodeToString(u[:4]) }
