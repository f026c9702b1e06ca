package uct

// RKey is an unpacked remote key: a number that only the domain that unpacked it can interpret. It
// is not an interface, so that the data path passes it in a register.
type RKey uint64

// MemFlags is the permitted use of registered memory.
type MemFlags uint32

// Memory flags.
const (
	// MemRemotePut permits puts by peers.
	MemRemotePut MemFlags = 1 << iota
	// MemRemoteGet permits gets by peers.
	MemRemoteGet
	// MemRemoteAtomic permits atomics by peers.
	MemRemoteAtomic
	// MemNoPin leaves the memory unpinned until its first use where the domain supports that.
	MemNoPin
	// MemHuge requests huge pages; it is a hint.
	MemHuge
)

// MemRemote permits all remote accesses.
const MemRemote = MemRemotePut | MemRemoteGet | MemRemoteAtomic

// Mem is a registered region. Its methods may be called from any goroutine, but Close only once
// no other call is in progress.
type Mem interface {
	// Bytes returns the region. It is valid until Close. Peers may write to it at any time.
	Bytes() []byte
	// AppendKey appends the packed key, which a peer passes to Domain.UnpackKey.
	AppendKey(b []byte) []byte
	// Revoke revokes the remote access to the region: accesses that start later fail at the peer.
	// It is idempotent.
	Revoke() Status
	// Close revokes the region, waits for accesses in flight with a time limit, and releases the
	// memory. It is idempotent.
	Close() error
}

// Reusable is a Mem that can be registered again after Close.
type Reusable interface {
	Mem
	// Reregister does what Domain.Register does, for a closed region that only the caller
	// references. It allocates nothing. On error the region stays closed. ErrBusy: it is open.
	Reregister(buf []byte, f MemFlags) error
}

// KeyAttr describes the accesses that an unpacked key permits through its domain.
type KeyAttr struct {
	// Ops are the forms of put and get that reach this region.
	Ops Ops
	// Atomic32 and Atomic64 are the atomics that reach this region.
	Atomic32, Atomic64 AtomicSet
	// Bytes is the region itself if it is mapped locally (load and store), else nil. It is valid
	// until ReleaseKey.
	Bytes []byte
}

// Domain is the scope in which memory is registered and keys are valid. Its methods may be called
// from any goroutine; none is on the data path.
type Domain interface {
	// Attr returns the domain's capabilities. They do not change; the caller must not write to them.
	Attr() *DomainAttr
	// Ifaces returns the interfaces that can be opened, and the refused ones.
	Ifaces() ([]IfaceInfo, []Refusal)
	// OpenIface opens one of Ifaces. The caller closes it before the domain.
	//
	// Errors: ucs.ErrInvalid for a bad configuration; otherwise those of the system or device.
	OpenIface(i IfaceInfo, c IfaceConfig) (Iface, error)
	// Register makes buf, memory of the program, accessible to peers. The domain owns the
	// registration, and references and pins buf, until Mem.Close. The program may use buf meanwhile.
	//
	// Errors: ucs.ErrInvalid if buf is empty, ucs.ErrUnsupported without DomainAttr.Register.
	Register(buf []byte, f MemFlags) (Mem, error)
	// Allocate maps n > 0 bytes of zeroed memory that is best suited to remote access.
	//
	// Errors: ucs.ErrInvalid for another n, ucs.ErrUnsupported without DomainAttr.Allocate.
	Allocate(n int, f MemFlags) (Mem, error)
	// UnpackKey resolves a packed key, which it does not retain. It may contact the owner, with a
	// time limit. The caller releases the key.
	//
	// Errors: a damaged, foreign or revoked key. With DomainAttr.LazyKeyCheck a revoked key may be
	// accepted.
	UnpackKey(key []byte) (RKey, error)
	// KeyAttr returns the accesses that a key permits. The key must not have been released.
	KeyAttr(k RKey) KeyAttr
	// ReleaseKey releases the key. No operation that uses it may be in flight.
	ReleaseKey(k RKey)
	// Close returns an error while ifaces or regions are open.
	Close() error
}
