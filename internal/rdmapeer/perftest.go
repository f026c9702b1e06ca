package main

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Bounds of what the peer announces in the exchange of perftest.
const (
	maxCycle = 1 << 24
	maxLine  = 1 << 12
)

// perftest runs a test of perftest. Its exchanges, with N queue pairs:
//
//	version, cycle buffer, cache line, MTU
//	           bandwidth                             latency
//	           N addresses; connect                  SEND: N addresses; connect; 1
//	           1; N addresses                        others: 1; N addresses; connect
//	           SEND or both ways: 1                  N addresses; 1
//	           transfer                              transfer
//	           not SEND and one way: 1
//	           not SEND or both ways: a report
//	           1                                     not WRITE: 1
//	"done"
//
// A 1 is an address without news: both sides have come so far.
func (r *run) perftest() error {
	if err := r.greet(); err != nil {
		return err
	}
	if err := r.allocate(); err != nil {
		return err
	}
	if err := r.introduce(); err != nil {
		return err
	}
	if r.plan.receives() {
		if err := r.prefill(); err != nil {
			return err
		}
	}
	t := r.plan.test
	if t.pattern == latency || t.verb == verbSend || r.plan.both {
		if err := r.barrier("ready"); err != nil {
			return err
		}
	}
	if err := r.transferPerftest(); err != nil {
		return err
	}
	return r.part()
}

// greet agrees on what both sides use.
func (r *run) greet() error {
	var version [versionSize]byte
	if err := r.ctl.exchange(appendVersion(nil), version[:], "version"); err != nil {
		return err
	}
	var err error
	if _, r.sameProgram, err = parseVersion(version[:]); err != nil {
		return err
	}
	if r.cycle, err = r.ctl.exchangeInt(r.cycle, maxCycle, "size of the cycle buffer"); err != nil {
		return err
	}
	if r.line, err = r.ctl.exchangeInt(r.line, maxLine, "size of a cache line"); err != nil {
		return err
	}
	var b [mtuSize]byte
	if err := r.ctl.exchange(appendMTU(nil, r.maxMTU), b[:], "MTU"); err != nil {
		return err
	}
	m, err := parseMTU(b[:])
	if err != nil {
		return err
	}
	r.mtu = min(r.maxMTU, m)
	if r.plan.typ == verbs.UD && r.plan.size > r.mtu.Bytes() {
		return fmt.Errorf("-s %d: a datagram has up to %v bytes on this path", r.plan.size, r.mtu)
	}
	return nil
}

// allocate registers the memory of the run and fills it.
func (r *run) allocate() (err error) {
	p := r.plan
	r.areaSize = max(p.size, r.cycle)
	r.areaStride = (r.areaSize + 2*pageSize - 1) &^ (pageSize - 1)
	local, remote := uint64(serverSeed), uint64(clientSeed)
	if p.server != "" {
		local, remote = clientSeed, serverSeed
	}
	r.local, r.remote = newStream(local, r.areaSize), newStream(remote, r.areaSize)
	if r.out, err = r.register(len(r.local)+p.qps*r.slotSize, 0); err != nil {
		return err
	}
	copy(r.out.Bytes(), r.local)
	slots := r.rx
	if p.test.verb >= verbRead {
		slots = r.tx
	}
	if r.slots, err = r.register(p.qps*slots*r.slotSize, verbs.LocalWrite); err != nil {
		return err
	}
	r.onReceive = r.checkMessage
	if r.area, err = r.register(p.qps*r.areaStride, r.access()); err != nil {
		return err
	}
	for _, l := range r.lanes {
		area := r.area.Bytes()[l.index*r.areaStride:][:r.areaStride]
		r.fillArea(l, area)
		l.local.RKey, l.local.VA = r.area.RKey(), r.area.Addr()+uint64(l.index*r.areaStride)
	}
	return nil
}

// fillArea fills the memory of a queue pair that the peer accesses.
func (r *run) fillArea(l *lane, area []byte) {
	for i := range area {
		area[i] = untouched
	}
	switch {
	case r.plan.test.verb == verbAtomic, r.counts():
		clear(area[:r.areaSize])
	case r.plan.test.verb != verbWrite:
		copy(area, r.local.message(l.index, 0, r.areaSize))
	}
}

// introduce exchanges the addresses and connects the queue pairs.
func (r *run) introduce() error {
	latencyFirst := r.plan.test.pattern == latency && r.plan.test.verb != verbSend
	if latencyFirst {
		if err := r.barrier("first"); err != nil {
			return err
		}
	}
	for _, l := range r.lanes {
		a, err := r.exchangeKey(l, fmt.Sprintf("address of queue pair %d", l.index))
		if err != nil {
			return err
		}
		if l.remote = a; a.OutReads == 0 && r.plan.test.verb >= verbRead {
			return fmt.Errorf("out_reads 0: the peer executes no READs and atomics: %w", errMessage)
		}
		if err := r.connect(l); err != nil {
			return err
		}
	}
	if !latencyFirst {
		if err := r.barrier("connected"); err != nil {
			return err
		}
	}
	for _, l := range r.lanes {
		if _, err := r.exchangeKey(l, fmt.Sprintf("address of queue pair %d again", l.index)); err != nil {
			return err
		}
	}
	return nil
}

// exchangeKey exchanges addresses.
func (r *run) exchangeKey(l *lane, what string) (address, error) {
	var b [keySize]byte
	if err := r.ctl.exchange(l.local.appendKey(nil), b[:], what); err != nil {
		return address{}, err
	}
	a, err := parseKey(b[:])
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return a, err
}

// barrier returns when both sides have called it.
func (r *run) barrier(what string) error {
	_, err := r.exchangeKey(r.lanes[0], fmt.Sprintf("barrier %q", what))
	return err
}

// transferPerftest transfers the data.
func (r *run) transferPerftest() error {
	p := r.plan
	switch {
	case r.counts():
		return r.writeLatency()
	case p.test.pattern == latency && p.test.verb == verbSend:
		return r.sendLatency()
	case p.initiates() || p.receives():
		if p.test.pattern == latency {
			r.tx = 1
		}
		return r.transfer(p.initiates(), p.receives())
	default:
		return nil // the peer accesses the memory of this side
	}
}

// sendLatency sends one message each way at a time. The client begins.
func (r *run) sendLatency() error {
	r.start()
	defer r.stop()
	l, first := r.lanes[0], r.plan.server != ""
	for k := range r.plan.iters {
		if !first {
			if err := r.await(func() bool { return l.received > k }, k); err != nil {
				return err
			}
		}
		if err := r.post(l); err != nil {
			return err
		}
		if err := r.await(func() bool { return l.sent > k && (!first || l.received > k) }, k); err != nil {
			return err
		}
	}
	return nil
}

// writeLatency writes one message each way at a time. The server begins. The last byte counts
// from 1.
func (r *run) writeLatency() error {
	r.start()
	defer r.stop()
	l, last := r.lanes[0], r.plan.size-1
	area := r.area.Bytes()[:r.areaStride]
	scratch := r.out.Bytes()[r.scratch(l):][:r.plan.size]
	for k := range r.plan.iters {
		count := byte(k + 1)
		arrived := func() bool { return byteAt(area, last) == count }
		if r.plan.server != "" {
			if err := r.awaitWrite(l, k, arrived); err != nil {
				return err
			}
		}
		copy(scratch, r.local.message(l.index, k, r.plan.size))
		scratch[last] = count
		if err := r.post(l); err != nil {
			return err
		}
		if err := r.await(func() bool { return l.sent > k }, k); err != nil {
			return err
		}
		if r.plan.server == "" {
			if err := r.awaitWrite(l, k, arrived); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitWrite waits for the peer's message k and checks it. perftest's memory is zero but for the
// counter.
func (r *run) awaitWrite(l *lane, k int, arrived func() bool) error {
	if err := r.await(arrived, k); err != nil {
		return err
	}
	l.received++
	r.received++
	r.verified++
	got, what := r.area.Bytes()[:r.plan.size-1], fmt.Sprintf("message %d", k)
	if r.sameProgram {
		return compare(got, r.remote.message(l.index, k, len(got)), what)
	}
	return compareAll(got, 0, what)
}

// await makes progress until ready returns true.
func (r *run) await(ready func() bool, k int) error {
	for !ready() {
		if err := r.progress(); err != nil {
			return fmt.Errorf("message %d of %d: %w", k, r.plan.iters, err)
		}
	}
	return nil
}

// part ends the run: it waits for the peer's end, and checks what the peer did to the memory of
// this side.
func (r *run) part() error {
	p := r.plan
	r.ctl.poll = r.progress // a passive device makes progress in its polls
	if p.events {
		r.ctl.poll = nil
	}
	start := ucs.Now()
	if p.test.pattern == bandwidth && p.test.verb != verbSend && !p.both {
		if err := r.barrier("transferred"); err != nil {
			return err
		}
	}
	if p.test.pattern == bandwidth && (p.test.verb != verbSend || p.both) {
		if err := r.report(); err != nil {
			return err
		}
	}
	if !r.counts() {
		if err := r.barrier("end"); err != nil {
			return err
		}
	}
	if !p.initiates() && !p.receives() {
		r.elapsed = ucs.Now().Sub(start)
	}
	if err := r.checkArea(); err != nil {
		return err
	}
	if r.counts() && !r.sameProgram {
		return r.ctl.close("")
	}
	return r.ctl.close(done)
}

// report exchanges the reports of a bandwidth test. A passive server of perftest fills its own
// with nothing in particular. A client's size and number of messages are those of the plan.
func (r *run) report() error {
	seconds := max(r.elapsed.Seconds(), 1e-9)
	rate := float64(r.sent) / seconds
	bandwidth := rate * float64(r.plan.size)
	var got [2]uint64
	for i, f := range []struct {
		name  string
		value uint64
	}{
		{"size", uint64(r.plan.size)},
		{"iterations", uint64(r.plan.iters * r.plan.qps)},
		{"peak bandwidth", math.Float64bits(bandwidth)},
		{"average bandwidth", math.Float64bits(bandwidth)},
		{"message rate", math.Float64bits(rate)},
	} {
		var a, b [reportSize]byte
		binary.BigEndian.PutUint64(a[:], f.value)
		if err := r.ctl.exchange(a[:], b[:], "report: "+f.name); err != nil {
			return err
		}
		if i < len(got) {
			got[i] = binary.BigEndian.Uint64(b[:])
		}
	}
	if r.plan.server != "" {
		return nil
	}
	if got[0] != uint64(r.plan.size) {
		return fmt.Errorf("report: size %d, want %d: both sides need the same -s: %w", got[0], r.plan.size, errMessage)
	}
	if n := uint64(r.plan.iters); got[1] != n && got[1] != n*uint64(r.plan.qps) {
		return fmt.Errorf("report: iterations %d, want %d: both sides need the same -n: %w", got[1], n, errMessage)
	}
	return nil
}
