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
// allocated at the first access.
const tableBytes = mapped.SlotBytes << 16

// lender is the owner's side of a domain: its regions, the key table with their
// generations, and the key server.
type lender struct {
	*mapped.Owner
	table  *shmem.Segment
	server *keyServer
}

// local maps the identities of this process's domains to their lenders. Regions of this
// process are mapped already. A request to the own key server would also wait for a
// goroutine that may need this goroutine's processor.
var local struct {
	sync.Mutex
	lenders map[uct.UUID]*lender
}

func localLender(id uct.UUID) *lender {
	local.Lock()
	defer local.Unlock()
	return local.lenders[id]
}

// lend returns the domain's lender and creates it at the first call. The caller holds
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
	// The server's end closes the descriptor. The mapping is released when no key of
	// this process uses it.
	l := &lender{table: seg}
	l.Owner = mapped.NewOwner(d.id, name, mapped.NewTable(seg.Bytes(), seg.Close), d.drain)
	l.server, err = startKeyServer(name, d, l)
	if err != nil {
		return nil, errors.Join(err, l.Owner.Close())
	}
	return l, nil
}

// keySocket returns a unique socket name.
func keySocket(dir string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	name := "goucx-key-" + hex.EncodeToString(b[:])
	if dir == "" {
		return "@" + name
	}
	return filepath.Join(dir, name)
}

// close ends the server and releases the key table. All regions must be closed.
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
