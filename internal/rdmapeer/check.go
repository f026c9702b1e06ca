package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/goucx/goucx/verbs"
)

// outOffset returns where in the out memory message k of a queue pair begins. ib_write_lat sends
// from behind the stream, where its counter is set.
func (r *run) outOffset(l *lane, k int) int {
	if r.counts() || r.plan.test.pattern == pingpong {
		return r.scratch(l)
	}
	return r.local.offset(l.index, k)
}

// scratch returns where in the out memory the changing message of a queue pair is.
func (r *run) scratch(l *lane) int { return len(r.local) + l.index*r.slotSize }

// counts reports whether the last byte of each message is a counter, as in ib_write_lat.
func (r *run) counts() bool { return r.plan.test.verb == verbWrite && r.plan.test.pattern == latency }

// checkGRH checks the sender in a datagram's GRH area.
func (r *run) checkGRH(l *lane, wc *verbs.WC, grh []byte) error {
	if wc.Flags&verbs.WCGRH == 0 {
		return fmt.Errorf("no GRH: %w", errData)
	}
	if wc.SrcQP != l.remote.QPN {
		return fmt.Errorf("from queue pair %#x, want %#x: %w", wc.SrcQP, l.remote.QPN, errData)
	}
	var got netip.Addr
	want := l.remote.GID.Addr()
	if want.Is4() { // the IPv4 header is in the last 20 bytes
		got = netip.AddrFrom4([4]byte(grh[32:36]))
	} else {
		got = netip.AddrFrom16([16]byte(grh[8:24]))
	}
	if got != want {
		return fmt.Errorf("from %v, want %v: %w", got, want, errData)
	}
	return nil
}

// checkMessage checks message k that perftest or another rdmapeer sent.
func (r *run) checkMessage(l *lane, k int, b []byte) error {
	what := fmt.Sprintf("message %d of queue pair %d", k, l.index)
	if r.sameProgram {
		r.verified++
		return compare(b, r.remote.message(l.index, k, len(b)), what)
	}
	return r.checkRepeats(l, k, b, what)
}

// checkRepeats checks that a foreign peer's data repeat after a turn of its buffer.
func (r *run) checkRepeats(l *lane, k int, b []byte, what string) error {
	if k < r.turn() {
		l.seen = append(l.seen, bytes.Clone(b))
		return nil
	}
	r.verified++
	return compare(b, l.seen[k%r.turn()], fmt.Sprintf("%s, which repeats message %d", what, k%r.turn()))
}

// checkResult checks what operation k of this side returned.
func (r *run) checkResult(l *lane, k int) error {
	b := r.slots.Bytes()
	switch r.plan.test.verb {
	case verbRead:
		slot := l.index*r.tx + k%r.tx
		b = b[slot*r.slotSize:][:r.plan.size]
		what := fmt.Sprintf("READ %d of queue pair %d", k, l.index)
		if r.sameProgram {
			r.verified++
			return compare(b, r.remote.message(l.index, 0, r.areaSize)[r.remoteOffset(k):][:len(b)], what)
		}
		if r.plan.test.pattern == latency {
			return r.checkRepeats(l, k*r.turn(), b, what) // always the same place
		}
		return r.checkRepeats(l, k, b, what)
	case verbAtomic:
		slot := l.index*r.tx + k%r.tx
		return r.checkAtomic(l, k, binary.NativeEndian.Uint64(b[slot*r.slotSize:]))
	default:
		return nil
	}
}

// checkAtomic checks the value that atomic k returned. The first value of a word is known only if
// the peer is an rdmapeer.
func (r *run) checkAtomic(l *lane, k int, got uint64) error {
	word := r.remoteOffset(k) / r.step()
	if l.atomics == nil {
		l.atomics = make([]atomicWord, r.turn())
		for i := range l.atomics {
			l.atomics[i].known = r.sameProgram
		}
	}
	w := &l.atomics[word]
	if w.known {
		r.verified++
		if got != w.value {
			return fmt.Errorf("atomic %d of queue pair %d: value %#x, want %#x: %w", k, l.index, got, w.value, errData)
		}
	}
	w.known, w.value = true, got
	if !r.plan.swap {
		w.value++
	} else if compare := uint64(k / r.turn()); got == compare {
		w.value = compare + 1
	}
	return nil
}

// checkArea checks the memory that the peer may access, at the end of the run.
func (r *run) checkArea() error {
	accessed := r.plan.both || r.plan.server == ""
	initial := make([]byte, r.areaStride)
	for _, l := range r.lanes {
		area := r.area.Bytes()[l.index*r.areaStride:][:r.areaStride]
		what := fmt.Sprintf("memory of queue pair %d", l.index)
		if err := compareAll(area[r.areaSize:], untouched, what+", behind what was announced"); err != nil {
			return err
		}
		var err error
		switch {
		case r.counts():
			// Each message was checked when it arrived.
		case accessed && r.plan.test.verb == verbWrite:
			err = r.checkWritten(l, area, what)
		case accessed && r.plan.test.verb == verbAtomic:
			err = r.checkWords(area[:r.areaSize], what)
		default:
			r.fillArea(l, initial)
			err = compare(area, initial, what+", which the peer does not write")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkWritten checks the last message that was written to each place.
func (r *run) checkWritten(l *lane, area []byte, what string) error {
	for i := range min(r.turn(), r.plan.iters) {
		b := area[i*r.step():][:r.plan.size]
		last := (r.plan.iters-1-i)/r.turn()*r.turn() + i
		if r.sameProgram {
			if err := compare(b, r.remote.message(l.index, last, len(b)), fmt.Sprintf("%s, message %d", what, last)); err != nil {
				return err
			}
			r.verified++
		} else if len(b) >= 8 { // random bytes: shorter ones may happen to be the same
			if compareAll(b, untouched, "") == nil {
				return fmt.Errorf("%s, message %d: it was not written: %w", what, last, errData)
			}
			r.verified++
		}
	}
	return nil
}

// checkWords checks that the atomics of the peer add up. Each adds 1, or the compare-and-swap of an
// rdmapeer swaps a value by the next one. The operands of a foreign peer's compare-and-swap are not
// known.
func (r *run) checkWords(area []byte, what string) error {
	if r.plan.swap && !r.sameProgram {
		return nil
	}
	sum := uint64(0)
	for i := 0; i+atomicSize <= len(area); i += atomicSize {
		sum += binary.NativeEndian.Uint64(area[i:])
	}
	if sum != uint64(r.plan.iters) {
		return fmt.Errorf("%s: the words add up to %d, want %d: %w", what, sum, r.plan.iters, errData)
	}
	r.verified += r.plan.iters
	return nil
}
