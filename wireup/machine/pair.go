package machine

import "fmt"

// PairID names a pair of a connection, as seen from one side: bit 0 says that
// this side made it, the rest counts the pairs of the side that made it.
type PairID uint32

const (
	// None is no pair: a side that is in it sends or reads nothing for now.
	None PairID = 0
	// End in a marker: nothing follows any more.
	End PairID = 1<<32 - 1
)

// theirs reports whether the pair is one that the other side made.
func (p PairID) theirs() bool { return p != None && p != End && !p.Mine() }

// Flip gives the same pair as the other side names it.
func (p PairID) Flip() PairID {
	if p == None || p == End {
		return p
	}
	return p ^ 1
}

// Mine reports whether this side made the pair.
func (p PairID) Mine() bool { return p != End && p&1 != 0 }

// String gives "mine 1", "theirs 2", "none" or "end".
func (p PairID) String() string {
	switch {
	case p == None:
		return "none"
	case p == End:
		return "end"
	case p.Mine():
		return fmt.Sprintf("mine %d", p>>1)
	}
	return fmt.Sprintf("theirs %d", p>>1)
}

// number is the pair that this side makes as its nth.
func number(n uint32) PairID { return PairID(n<<1 | 1) }
