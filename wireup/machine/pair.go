package machine

import "fmt"

// PairID names a pair of a connection, as seen from one side. Bit 0 is set for a local pair, one
// that this side created. The other bits number the pairs of the creating side.
type PairID uint32

const (
	// None is no pair: the direction sends or reads nothing for now.
	None PairID = 0
	// End, in a marker, ends the direction: nothing follows.
	End PairID = 1<<32 - 1
)

// isRemote reports whether the peer created the pair.
func (p PairID) isRemote() bool { return p != None && p != End && !p.IsLocal() }

// Flip returns the name that the other side uses for the same pair.
func (p PairID) Flip() PairID {
	if p == None || p == End {
		return p
	}
	return p ^ 1
}

// IsLocal reports whether this side created the pair.
func (p PairID) IsLocal() bool { return p != End && p&1 != 0 }

// String returns "local 1", "remote 2", "none" or "end".
func (p PairID) String() string {
	switch {
	case p == None:
		return "none"
	case p == End:
		return "end"
	case p.IsLocal():
		return fmt.Sprintf("local %d", p>>1)
	}
	return fmt.Sprintf("remote %d", p>>1)
}

// localPair returns the name of the nth local pair.
func localPair(n uint32) PairID { return PairID(n<<1 | 1) }
