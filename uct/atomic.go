package uct

// AtomicOp is a remote atomic operation.
type AtomicOp uint8

// The operations, as in UCX and, for Add and CompareSwap, InfiniBand.
const (
	AtomicAdd AtomicOp = iota
	AtomicAnd
	AtomicOr
	AtomicXor
	AtomicSwap
	AtomicCompareSwap
	NumAtomicOps
)

var atomicNames = [NumAtomicOps]string{"add", "and", "or", "xor", "swap", "cswap"}

// String gives UCX's short name of the operation.
func (op AtomicOp) String() string {
	if op < NumAtomicOps {
		return atomicNames[op]
	}
	return "atomic?"
}

// AtomicSet is a set of atomic operations, bit 1<<op each.
type AtomicSet uint8

// AllAtomics holds every operation.
const AllAtomics AtomicSet = 1<<NumAtomicOps - 1

// PostAtomics holds the operations that make sense without a result.
const PostAtomics = AllAtomics &^ (1<<AtomicSwap | 1<<AtomicCompareSwap)

// Has reports whether op is in the set.
func (s AtomicSet) Has(op AtomicOp) bool { return s>>op&1 != 0 }
