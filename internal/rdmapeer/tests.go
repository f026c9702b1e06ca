package main

import "github.com/goucx/goucx/verbs"

// verb is the operation of a test.
type verb uint8

const (
	verbSend verb = iota
	verbWrite
	verbRead
	verbAtomic
)

// pattern is the order of the operations of a test.
type pattern uint8

const (
	bandwidth pattern = iota // the client's operations, or those of both sides, back to back
	latency                  // one operation at a time
	pingpong                 // one message each way at a time, of rdma-core's programs
)

// test is a program that rdmapeer is a peer of.
type test struct {
	name    string
	verb    verb
	pattern pattern
	typ     verbs.QPType // of the queue pairs, unless an option sets it
	srq     bool         // whatever the options are
	size    int          // bytes of a message, by default
	iters   int          // messages of each queue pair, by default
	qps     int          // queue pairs, by default
}

// tests are the programs, with their defaults.
var tests = []test{
	{"ibv_rc_pingpong", verbSend, pingpong, verbs.RC, false, 4096, 1000, 1},
	{"ibv_uc_pingpong", verbSend, pingpong, verbs.UC, false, 4096, 1000, 1},
	{"ibv_ud_pingpong", verbSend, pingpong, verbs.UD, false, 1024, 1000, 1},
	{"ibv_srq_pingpong", verbSend, pingpong, verbs.RC, true, 4096, 1000, 16},
	{"ib_send_lat", verbSend, latency, verbs.RC, false, 2, 1000, 1},
	{"ib_send_bw", verbSend, bandwidth, verbs.RC, false, 65536, 1000, 1},
	{"ib_write_lat", verbWrite, latency, verbs.RC, false, 2, 1000, 1},
	{"ib_write_bw", verbWrite, bandwidth, verbs.RC, false, 65536, 5000, 1},
	{"ib_read_lat", verbRead, latency, verbs.RC, false, 2, 1000, 1},
	{"ib_read_bw", verbRead, bandwidth, verbs.RC, false, 65536, 1000, 1},
	{"ib_atomic_lat", verbAtomic, latency, verbs.RC, false, atomicSize, 1000, 1},
	{"ib_atomic_bw", verbAtomic, bandwidth, verbs.RC, false, atomicSize, 1000, 1},
}

// atomicSize is the size of an atomic operation in bytes.
const atomicSize = 8

// testByName returns the test of a program, or nil.
func testByName(name string) *test {
	for i := range tests {
		if tests[i].name == name {
			return &tests[i]
		}
	}
	return nil
}

// opcode returns the operation of the initiator.
func (p *plan) opcode() verbs.Opcode {
	switch p.test.verb {
	case verbWrite:
		return verbs.OpWrite
	case verbRead:
		return verbs.OpRead
	case verbAtomic:
		if p.swap {
			return verbs.OpCompareSwap
		}
		return verbs.OpFetchAdd
	default:
		return verbs.OpSend
	}
}

// initiates reports whether this side posts operations, and receives whether it gets messages.
func (p *plan) initiates() bool {
	return p.test.pattern != bandwidth && p.test.verb <= verbWrite || p.both || p.server != ""
}

func (p *plan) receives() bool {
	return p.test.verb == verbSend && (p.test.pattern != bandwidth || p.both || p.server == "")
}
