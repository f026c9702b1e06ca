package ucp

import (
	"fmt"
	"slices"

	"github.com/goucx/goucx/uct"
)

// Access says who may do what with registered memory. Zero: everything.
type Access uint8

// Access rights. The program itself always has its own memory.
const (
	AccessLocal        Access = 1 << iota // alone: no peer reaches it
	AccessRemotePut                       // peers write it
	AccessRemoteGet                       // peers read it
	AccessRemoteAtomic                    // peers carry out atomics on it
)

const accessAll = AccessLocal | AccessRemotePut | AccessRemoteGet | AccessRemoteAtomic

// MemConfig is how memory is registered or allocated. The zero value works.
type MemConfig struct {
	// Access for peers.
	Access Access
	// NoPin leaves memory unpinned, or its pages untaken, until first use, where
	// the transport can.
	NoPin bool
	// Huge asks for huge pages; a hint.
	Huge bool
}

// flags gives the configuration as the transports take it.
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
	// Base is the address of the first byte, Len the size in bytes.
	Base uint64
	Len  int
	// Access as it is in force, with AccessLocal.
	Access Access
	// Allocated: by Context.Allocate.
	Allocated bool
	// Transports that reach it ("shm", "rc/eth0"), and those that do not, with their
	// reasons.
	Transports []string
	Refused    []uct.Refusal
}

// Query describes the memory.
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
