package uct

// RKey is an unpacked remote key: a number that only the domain that unpacked
// it can read. Never an interface, so that the data path passes it in a
// register.
type RKey uint64

// MemFlags say what registered memory is for.
type MemFlags uint32

// Memory flags.
const (
	// MemRemotePut, MemRemoteGet, MemRemoteAtomic let peers use the region so.
	MemRemotePut MemFlags = 1 << iota
	MemRemoteGet
	MemRemoteAtomic
	// MemNoPin leaves the memory unpinned until first use where the domain can.
	MemNoPin
	// MemHuge asks for huge pages; a hint.
	MemHuge
)

// MemRemote lets peers do everything.
const MemRemote = MemRemotePut | MemRemoteGet | MemRemoteAtomic

// Mem is a registered region.
type Mem interface {
	// Bytes is the region, until Close.
	Bytes() []byte
	// AppendKey appends the packed key that a peer's domain unpacks.
	AppendKey(b []byte) []byte
	// Revoke withdraws the region from peers: accesses that start later fail
	// there. Idempotent.
	Revoke() Status
	// Close revokes the region, waits, bounded, for accesses that are on their
	// way, and gives the memory back. Idempotent.
	Close() error
}

// Reregisterer is a Mem that can be registered anew after Close.
type Reregisterer interface {
	Mem
	// Reregister does what Domain.Register does, with a region that is closed and
	// that nobody but the caller holds, and allocates nothing. An error leaves it
	// closed. ErrBusy: it is open.
	Reregister(buf []byte, f MemFlags) error
}

// KeyAttr tells what an unpacked key allows through its domain.
type KeyAttr struct {
	// Ops of put and get that reach this region.
	Ops Ops
	// Atomics of 32 and 64 bits that reach this region.
	Atomic32, Atomic64 AtomicSet
	// Bytes is the region itself where it is mapped here (load and store), else
	// nil. Valid until ReleaseKey.
	Bytes []byte
}

// Domain is the scope in which memory is registered and keys are valid. Its
// methods are safe from any goroutine; none is on the data path.
type Domain interface {
	Attr() *DomainAttr
	// Ifaces lists the interfaces that can be opened and what is refused.
	Ifaces() ([]IfaceInfo, []Refusal)
	OpenIface(i IfaceInfo, c IfaceConfig) (Iface, error)
	// Register makes buf, memory of the program, reachable for peers. The
	// domain holds and pins it until Close. buf must not be empty.
	Register(buf []byte, f MemFlags) (Mem, error)
	// Allocate maps n > 0 bytes of zeroed memory that peers reach best.
	Allocate(n int, f MemFlags) (Mem, error)
	// UnpackKey resolves a packed key, once; a damaged, foreign or revoked one
	// is an error. May contact the owner, bounded in time.
	UnpackKey(key []byte) (RKey, error)
	// KeyAttr tells what a key allows. The key must not have been released.
	KeyAttr(k RKey) KeyAttr
	// ReleaseKey ends the key's use; no operation may be in flight with it.
	ReleaseKey(k RKey)
	// Close refuses with an error while ifaces or regions are open.
	Close() error
}
