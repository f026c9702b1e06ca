package shm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// tableBytes is the size of a domain's key table: 65,536 regions. Its pages are
// taken on first touch.
const tableBytes = mapped.SlotBytes << 16

// lender is the owning side of a domain: its regions, the table with their
// generations and the server that hands both out.
type lender struct {
	*mapped.Owner
	table  *shmem.Segment
	server *keyServer
}

// local finds the domains of this process by their identity: their memory is
// mapped already, and asking oneself over a socket would wait for a goroutine
// that may need this one's processor.
var local struct {
	sync.Mutex
	lenders map[uct.UUID]*lender
}

func localLender(id uct.UUID) *lender {
	local.Lock()
	defer local.Unlock()
	return local.lenders[id]
}

// lend gives the domain's lender, making it at the first call. The caller holds
// lendMu.
func (d *domain) lend() (*lender, error) {
	d.mu.Lock()
	l, closed := d.lender, d.closed
	d.mu.Unlock()
	if closed {
		return nil, ucs.ErrClosed
	}
	if l != nil {
		return l, nil
	}
	l, err := d.newLender()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.lender = l
	d.mu.Unlock()
	local.Lock()
	if local.lenders == nil {
		local.lenders = make(map[uct.UUID]*lender)
	}
	local.lenders[d.id] = l
	local.Unlock()
	return l, nil
}

func (d *domain) newLender() (*lender, error) {
	name := keySocket(socketDir.Get(d.settings))
	if len(name) > mapped.MaxSocket {
		return nil, fmt.Errorf("key socket %q: name longer than %d bytes: %w", name, mapped.MaxSocket, ucs.ErrInvalid)
	}
	seg, err := shmem.Create("goucx-keys", tableBytes)
	if err != nil {
		return nil, fmt.Errorf("key table: %w", err)
	}
	// The descriptor goes when the server ends, the mapping when no key of this
	// process needs it any more.
	l := &lender{table: seg}
	l.Owner = mapped.NewOwner(d.id, name, mapped.NewTable(seg.Bytes(), seg.Close), d.drain)
	l.server, err = startKeyServer(name, d, l)
	if err != nil {
		return nil, errors.Join(err, l.Owner.Close())
	}
	return l, nil
}

// keySocket makes a name that nobody else has.
func keySocket(dir string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	name := "goucx-key-" + hex.EncodeToString(b[:])
	if dir == "" {
		return "@" + name
	}
	return filepath.Join(dir, name)
}

// close ends the server and lets go of the table. The regions are closed.
func (l *lender) close() error {
	local.Lock()
	for id, m := range local.lenders {
		if m == l {
			delete(local.lenders, id)
		}
	}
	local.Unlock()
	return errors.Join(l.server.close(), l.Owner.Close())
}
