package verbstest

import (
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// seen is what was noted of a packet.
type seen struct {
	from int
	at   ucs.Time
	op   wire.Opcode
	*wire.Info
	dest             verbs.QPN
	psn              verbs.PSN
	ackReq, se       bool
	syn              wire.Syndrome // with AETH
	addr             uint64        // with RETH or AtomicETH
	length           uint32        // with RETH
	payload, ordinal int           // ordinal counts the packets of this device
}

// request reports whether the packet asks something.
func (s *seen) request() bool {
	return s.Kind != wire.KindAck && s.Kind != wire.KindReadResponse
}

// trace is the packets of a case.
type trace struct {
	mu     sync.Mutex // guards all; the fabric may call from any goroutine
	env    *env
	counts [2]int
	list   []seen
}

// watch notes every packet from now on, and has f, where it is not nil, decide on
// them.
func (e *env) watch(f func(s *seen) Verdict) *trace {
	t := &trace{env: e}
	e.fabric.Filter(func(p Packet) Verdict {
		t.mu.Lock()
		defer t.mu.Unlock()
		s := look(p)
		s.at = e.now()
		s.ordinal = t.counts[p.From]
		t.counts[p.From]++
		t.list = append(t.list, s)
		if f == nil {
			return Verdict{}
		}
		return f(&s)
	})
	return t
}

func look(p Packet) seen {
	s := seen{
		from: p.From, op: p.Opcode, Info: p.Opcode.Info(), dest: p.DestQP, psn: p.PSN, ackReq: p.AckReq, se: p.Solicited,
		payload: len(p.Payload),
	}
	if s.Headers&wire.HasAETH != 0 {
		s.syn = p.Syndrome
	}
	if s.Headers&wire.HasRETH != 0 {
		s.addr, s.length = p.VA, p.DMALen
	}
	if s.Headers&wire.HasAtomicETH != 0 {
		s.addr = p.VA
	}
	return s
}

// find gives the noted packets for which is holds.
func (t *trace) find(is func(s *seen) bool) (found []seen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.list {
		if is(&t.list[i]) {
			found = append(found, t.list[i])
		}
	}
	return found
}

// requests gives the requests of a device, in the order in which they went.
func (t *trace) requests(from int) []seen {
	return t.find(func(s *seen) bool { return s.from == from && s.request() })
}

// acks gives the acknowledgements of a device for which is holds.
func (t *trace) acks(from int, is func(wire.Syndrome) bool) []seen {
	return t.find(func(s *seen) bool { return s.from == from && s.op == wire.Acknowledge && is(s.syn) })
}
