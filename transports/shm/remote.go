package shm

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// remote is a domain of another process of which this domain holds keys. It holds that
// domain's key table and the regions mapped from it.
//
// Lock order: asking before mu. Only asking is held during a request to the owner, so
// that keys can be released meanwhile.
type remote struct {
	d    *domain
	id   uct.UUID
	refs int // keys held or being unpacked; guarded by d.mu

	requestMu sync.Mutex

	mu         sync.Mutex // guards the fields below
	table      *shmem.Segment
	regions    map[remoteID]*remoteRegion
	conn       *shmem.Conn // nil if far is 0; it hangs up when the owner exits
	cmaRegions int         // regions accessed by cross-memory attach
}

// remoteID identifies a region in its domain.
type remoteID struct {
	slot uint32
	gen  uint64
}

// remoteRegion is a region of a remote, mapped or accessed by cross-memory attach.
type remoteRegion struct {
	key  mapped.PackedKey
	seg  *shmem.Segment // nil: accessed through far
	cma  *cmaRegion
	refs int
}

// remote returns the remote that owns region p, with one more reference.
func (d *domain) remote(p *mapped.PackedKey) (*remote, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ucs.ErrClosed
	}
	r := d.remotes[p.Domain]
	if r == nil {
		r = &remote{d: d, id: p.Domain, regions: make(map[remoteID]*remoteRegion)}
		d.remotes[p.Domain] = r
	}
	r.refs++
	return r, nil
}

// releaseRemote releases a reference. The last one unmaps the key table.
func (d *domain) releaseRemote(r *remote) {
	d.mu.Lock()
	r.refs--
	last := r.refs == 0
	if last {
		delete(d.remotes, r.id)
	}
	d.mu.Unlock()
	if !last {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table != nil {
		_ = r.table.Close() // a valid unmap does not fail
	}
}

// unpack makes a key of region p. On success the key holds the caller's reference to r.
func (r *remote) unpack(p *mapped.PackedKey) (uct.RKey, error) {
	g, slot, err := r.region(p)
	if err != nil {
		return 0, err
	}
	s := mapped.Spec{
		Base: p.Base, Len: p.Len, Flags: p.Flags, Slot: slot, Gen: p.Gen,
		Release: func() { r.release(g); r.d.releaseRemote(r) },
	}
	if g.seg != nil {
		s.Bytes = g.seg.Bytes()
	} else {
		s.Copier = g.cma
	}
	k, err := r.d.keys.Add(s)
	if err != nil {
		r.release(g)
	}
	return k, err
}

// region returns region p if it is held already. Otherwise it requests it from the owner.
func (r *remote) region(p *mapped.PackedKey) (*remoteRegion, *mapped.Slot, error) {
	r.requestMu.Lock()
	defer r.requestMu.Unlock()
	if g, slot, err := r.lookup(p); g != nil || err != nil {
		return g, slot, err
	}
	r.mu.Lock()
	wantTable := r.table == nil
	r.mu.Unlock()
	grant, err := requestGrant(p, wantTable, cmp.Or(r.d.replyWait, requestTimeout))
	if err != nil {
		return nil, nil, err
	}
	defer grant.close()
	return r.addRegion(p, &grant)
}

// lookup returns region p if it is held already, and all nil if not. It returns an error
// without a request if the key table shows that the region was revoked.
func (r *remote) lookup(p *mapped.PackedKey) (*remoteRegion, *mapped.Slot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table == nil {
		return nil, nil, nil
	}
	slot := mapped.SlotAt(r.table.Bytes(), p.Slot)
	if slot == nil || !slot.Holds(p.Gen) {
		return nil, nil, keyStatusErrs[keyRevoked]
	}
	g := r.regions[remoteID{p.Slot, p.Gen}]
	if g == nil {
		return nil, nil, nil
	}
	if g.key != *p {
		return nil, nil, fmt.Errorf("the region is %v: %w", &g.key, ucs.ErrRemoteAccess)
	}
	g.refs++
	return g, slot, nil
}

// addRegion adds region p from the owner's grant. It maps the key table if need be.
func (r *remote) addRegion(p *mapped.PackedKey, grant *keyGrant) (*remoteRegion, *mapped.Slot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table == nil {
		seg, err := mapGranted(&grant.table, tableBytes)
		if err != nil {
			return nil, nil, fmt.Errorf("key table: %w", err)
		}
		r.table = seg
	}
	slot := mapped.SlotAt(r.table.Bytes(), p.Slot)
	if slot == nil {
		return nil, nil, fmt.Errorf("%w: slot %d", mapped.ErrKey, p.Slot)
	}
	g := &remoteRegion{key: *p, refs: 1}
	var err error
	if p.Kind == mapped.Allocated {
		g.seg, err = mapGranted(&grant.region, int(p.Len))
	} else {
		g.cma, err = r.newCMALocked(p, slot, grant)
	}
	if err != nil {
		return nil, nil, err
	}
	r.regions[remoteID{p.Slot, p.Gen}] = g
	return g, slot, nil
}

// mapGranted maps descriptor *fd and closes it: the mapping suffices. Once mapped, *fd is -1.
func mapGranted(fd *int, n int) (*shmem.Segment, error) {
	seg, err := shmem.Map(*fd, n)
	if err != nil {
		return nil, err
	}
	*fd = -1
	if err := seg.CloseFD(); err != nil {
		_ = seg.Close() // the first error is returned
		return nil, err
	}
	return seg, nil
}

// release releases a reference to region g.
func (r *remote) release(g *remoteRegion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.refs--; g.refs > 0 {
		return
	}
	delete(r.regions, remoteID{g.key.Slot, g.key.Gen})
	if g.seg != nil {
		_ = g.seg.Close() // a valid unmap does not fail
		return
	}
	if r.cmaRegions--; r.cmaRegions == 0 {
		_ = r.conn.Close() // cannot fail: no unsent data
		r.conn = nil
	}
}

// cmaRegion is a region in another process's private memory. The kernel copies from and
// to it (cross-memory attach). Each access is counted in the region's slot, so that the
// owner's Close can wait for it.
type cmaRegion struct {
	pid  int
	conn *shmem.Conn // the remote's conn; it hangs up when the owner exits or executes another program
	slot *mapped.Slot
	gen  uint64
}

var _ mapped.Copier = (*cmaRegion)(nil)

// newCMALocked returns an accessor for region p. It first reads one byte to find out whether the
// system permits the access.
func (r *remote) newCMALocked(p *mapped.PackedKey, slot *mapped.Slot, grant *keyGrant) (*cmaRegion, error) {
	conn := r.conn
	if conn == nil {
		conn = grant.conn
	}
	f := &cmaRegion{pid: grant.pid, conn: conn, slot: slot, gen: p.Gen}
	const advice = "have the owner allocate the memory instead of registering its own"
	if f.pid <= 0 {
		return nil, fmt.Errorf("process_vm_readv: the owner is in another pid namespace; %s: %w", advice, ucs.ErrUnsupported)
	}
	if !f.slot.Enter(f.gen) {
		return nil, keyStatusErrs[keyRevoked]
	}
	var b [1]byte
	_, err := shmem.ProcessRead(f.pid, b[:], uintptr(p.Base))
	f.slot.Leave()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("%w: forbidden here (ptrace scope, seccomp or user namespace); %s: %w", err, advice, ucs.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	if r.conn == nil {
		r.conn, grant.conn = conn, nil
	}
	r.cmaRegions++
	return f, nil
}

// Read: see mapped.Copier.
func (f *cmaRegion) Read(p []byte, addr uint64) uct.Status {
	return f.copy(p, addr, shmem.ProcessRead)
}

// Write: see mapped.Copier.
func (f *cmaRegion) Write(p []byte, addr uint64) uct.Status {
	return f.copy(p, addr, shmem.ProcessWrite)
}

func (f *cmaRegion) copy(p []byte, addr uint64, do func(int, []byte, uintptr) (int, error)) uct.Status {
	if !f.slot.Enter(f.gen) {
		return ucs.RemoteAccess
	}
	defer f.slot.Leave()
	if !f.alive() {
		return ucs.PeerFailed
	}
	switch _, err := do(f.pid, p, uintptr(addr)); {
	case err == nil:
		return ucs.OK
	case errors.Is(err, unix.ESRCH):
		return ucs.PeerFailed
	case errors.Is(err, unix.EFAULT):
		return ucs.RemoteAccess
	case errors.Is(err, unix.ENOMEM):
		return ucs.NoMemory
	}
	return ucs.Unsupported
}

// alive reports whether the owner still runs, so that its process id is not reused yet.
// The owner may exit right after the check. Reuse of its id between the check and the
// copy is considered impossible.
func (f *cmaRegion) alive() bool { return !hungUp(f.conn.FD(), unix.POLLIN) }

// hungUp reports whether fd, a pidfd or a socket, shows the end of the peer: any event is that. events is POLLIN, or 0
// for a socket on which the peer sends messages.
func hungUp(fd int, events int16) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		n, err := unix.Poll(fds[:], 0)
		if err == unix.EINTR {
			continue
		}
		return err != nil || n != 0
	}
}
