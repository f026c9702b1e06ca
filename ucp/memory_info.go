package ucp

import (
	"fmt"
	"slices"

	"github.com/goucx/goucx/uct"
)

// Access is a set of rights to registered memory. The zero Access grants all of them.
type Access uint8

// Access rights. The local program can always access its own memory.
const (
	AccessLocal        Access = 1 << iota // local access alone; no peer reaches the memory
	AccessRemotePut                       // peers may write it
	AccessRemoteGet                       // peers may read it
	AccessRemoteAtomic                    // peers may perform atomics on it
)

const accessAll = AccessLocal | AccessRemotePut | AccessRemoteGet | AccessRemoteAtomic

// MemConfig configures how memory is registered or allocated. The zero value is valid.
type MemConfig struct {
	// Access is the set of the peers' rights.
	Access Access
	// NoPin leaves memory unpinned, or its pages unallocated, until first use, if the
	// transport supports that.
	NoPin bool
	// Huge asks for huge pages; it is a hint.
	Huge bool
}

// flags returns the configuration as uct flags.
func (c MemConfig) flags() (uct.MemFlags, error) {
	if c.Access&^accessAll != 0 {
		return 0, fmt.Errorf("unknown Access %#x: %w", c.Access&^accessAll, ErrInvalid)
	}
	a := c.Access
	if a == 0 {
		a = accessAll
	}
	var f uct.MemFlags
	for _, m := range []struct {
		set  bool
		flag uct.MemFlags
	}{
		{a&AccessRemotePut != 0, uct.MemRemotePut},
		{a&AccessRemoteGet != 0, uct.MemRemoteGet},
		{a&AccessRemoteAtomic != 0, uct.MemRemoteAtomic},
		{c.NoPin, uct.MemNoPin},
		{c.Huge, uct.MemHuge},
	} {
		if m.set {
			f |= m.flag
		}
	}
	return f, nil
}

// MemInfo describes registered memory.
type MemInfo struct {
	// Base is the address of the first byte. Len is the size in bytes.
	Base uint64
	Len  int
	// Access is the set of rights in force, with AccessLocal.
	Access Access
	// Allocated reports whether Context.Allocate made the memory.
	Allocated bool
	// Transports lists the transports that reach the memory ("shm", "rc/eth0"). Refused
	// lists the others with their reasons.
	Transports []string
	Refused    []uct.Refusal
}

// Query returns a description of the memory.
func (m *MemHandle) Query() MemInfo {
	i := MemInfo{
		Base: m.base, Len: len(m.buf), Access: AccessLocal, Allocated: m.allocated,
		Refused: slices.Clone(m.refused),
	}
	for flag, a := range map[uct.MemFlags]Access{
		uct.MemRemotePut: AccessRemotePut, uct.MemRemoteGet: AccessRemoteGet, uct.MemRemoteAtomic: AccessRemoteAtomic,
	} {
		if m.access&flag != 0 {
			i.Access |= a
		}
	}
	for _, r := range m.regions {
		i.Transports = append(i.Transports, r.name)
	}
	return i
}
