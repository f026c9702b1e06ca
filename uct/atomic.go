package uct

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
)

// AtomicOp is a remote atomic operation.
type AtomicOp uint8

// The operations have UCX's semantics; Add and CompareSwap also InfiniBand's.
const (
	// AtomicAdd adds the operand, modulo the word's range.
	AtomicAdd AtomicOp = iota
	// AtomicAnd, AtomicOr and AtomicXor combine word and operand bit by bit.
	AtomicAnd
	AtomicOr
	AtomicXor
	// AtomicSwap stores the operand.
	AtomicSwap
	// AtomicCompareSwap stores the operand if the word equals cmp.
	AtomicCompareSwap
	// NumAtomicOps is the number of operations.
	NumAtomicOps
)

var atomicNames = [NumAtomicOps]string{"add", "and", "or", "xor", "swap", "cswap"}

// String returns UCX's short name of the operation.
func (op AtomicOp) String() string {
	if op < NumAtomicOps {
		return atomicNames[op]
	}
	return "atomic?"
}

// Fetch64 executes op on the word at p with the CPU and returns the previous value. Only
// AtomicCompareSwap uses cmp. It returns InvalidParam for an undefined operation.
func (op AtomicOp) Fetch64(p *uint64, v, cmp uint64) (uint64, Status) {
	switch op {
	case AtomicAdd:
		return atomic.AddUint64(p, v) - v, ucs.OK
	case AtomicAnd:
		return atomic.AndUint64(p, v), ucs.OK
	case AtomicOr:
		return atomic.OrUint64(p, v), ucs.OK
	case AtomicXor: // sync/atomic has no Xor
		for {
			if old := atomic.LoadUint64(p); atomic.CompareAndSwapUint64(p, old, old^v) {
				return old, ucs.OK
			}
		}
	case AtomicSwap:
		return atomic.SwapUint64(p, v), ucs.OK
	case AtomicCompareSwap:
		for !atomic.CompareAndSwapUint64(p, cmp, v) {
			// Return a value other than cmp. If the load returns cmp, the word has changed in
			// between: retry.
			if old := atomic.LoadUint64(p); old != cmp {
				return old, ucs.OK
			}
		}
		return cmp, ucs.OK
	}
	return 0, ucs.InvalidParam
}

// Fetch32 is Fetch64 for 32 bits.
func (op AtomicOp) Fetch32(p *uint32, v, cmp uint32) (uint32, Status) {
	switch op {
	case AtomicAdd:
		return atomic.AddUint32(p, v) - v, ucs.OK
	case AtomicAnd:
		return atomic.AndUint32(p, v), ucs.OK
	case AtomicOr:
		return atomic.OrUint32(p, v), ucs.OK
	case AtomicXor:
		for {
			if old := atomic.LoadUint32(p); atomic.CompareAndSwapUint32(p, old, old^v) {
				return old, ucs.OK
			}
		}
	case AtomicSwap:
		return atomic.SwapUint32(p, v), ucs.OK
	case AtomicCompareSwap:
		for !atomic.CompareAndSwapUint32(p, cmp, v) {
			if old := atomic.LoadUint32(p); old != cmp {
				return old, ucs.OK
			}
		}
		return cmp, ucs.OK
	}
	return 0, ucs.InvalidParam
}

// AtomicSet is a set of atomic operations: bit 1<<op for each.
type AtomicSet uint8

// AllAtomics contains every operation.
const AllAtomics AtomicSet = 1<<NumAtomicOps - 1

// PostAtomics contains the operations that are useful without a result.
const PostAtomics = AllAtomics &^ (1<<AtomicSwap | 1<<AtomicCompareSwap)

// Has reports whether op is in the set.
func (s AtomicSet) Has(op AtomicOp) bool { return s>>op&1 != 0 }
