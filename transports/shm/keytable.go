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

// exporter is the owner's side of a domain: its regions, the key table with their
// generations, and the key server.
type exporter struct {
	*mapped.Owner
	table  *shmem.Segment
	server *keyServer
}

// localExporters maps the identities of this process's domains to their lenders. Regions of this
// process are mapped already. A request to the own key server would also wait for a
// goroutine that may need this goroutine's processor.
var localExporters struct {
	sync.Mutex
	lenders map[uct.UUID]*exporter
}

func localExporter(id uct.UUID) *exporter {
	localExporters.Lock()
	defer localExporters.Unlock()
	return localExporters.lenders[id]
}

// openExporter returns the domain's lender and creates it at the first call. The caller holds
// exporterMu.
func (d *domain) openExporter() (*exporter, error) {
	d.mu.Lock()
	l, closed := d.exporter, d.closed
	d.mu.Unlock()
	if closed {
		return nil, ucs.ErrClosed
	}
	if l != nil {
		return l, nil
	}
	l, err := d.newExporter()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.exporter = l
	d.mu.Unlock()
	localExporters.Lock()
	if localExporters.lenders == nil {
		localExporters.lenders = make(map[uct.UUID]*exporter)
	}
	localExporters.lenders[d.id] = l
	localExporters.Unlock()
	return l, nil
}

func (d *domain) newExporter() (*exporter, error) {
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
	l := &exporter{table: seg}
	l.Owner = mapped.NewOwner(d.id, name, mapped.NewTable(seg.Bytes(), seg.Close), d.closeWait)
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
func (l *exporter) close() error {
	localExporters.Lock()
	for id, m := range localExporters.lenders {
		if m == l {
			delete(localExporters.lenders, id)
		}
	}
	localExporters.Unlock()
	return errors.Join(l.server.close(), l.Owner.Close())
}
