package main

import (
	"fmt"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

const (
	// srqAddresses is how many addresses ibv_srq_pingpong exchanges, however many queue pairs it has.
	srqAddresses = 256
	// filled is what ibv_{rc,uc,ud}_pingpong fill their buffers with. ibv_srq_pingpong has zeros.
	filled = 0x7b
	// echoTime is how long a run serves its device after its last message: the peer's last message may
	// wait for its acknowledgement.
	echoTime = 300 * time.Millisecond
)

// pingpong runs a test of rdma-core. The client sends its addresses and receives the server's.
// Then both close the connection, and the client sends the first message.
func (r *run) pingpong() error {
	r.mtu = r.maxMTU
	if err := r.allocatePingpong(); err != nil {
		return err
	}
	if err := r.prefill(); err != nil {
		return err
	}
	if err := r.exchangePingpong(); err != nil {
		return err
	}
	if err := r.echoes(); err != nil {
		return err
	}
	for end := min(ucs.Now().Add(echoTime), r.deadline); ucs.Now() < end; {
		if r.cq.Poll(r.wcs[:]); r.channel != nil {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// allocatePingpong registers the memory of the run.
func (r *run) allocatePingpong() (err error) {
	p := r.plan
	if p.typ == verbs.UD && p.size > r.mtu.Bytes() && p.size > r.port.ActiveMTU.Bytes() {
		return fmt.Errorf("-s %d: a datagram has up to %v bytes on this port", p.size, r.port.ActiveMTU)
	}
	r.remote = newStream(clientSeed, p.size)
	if r.local = r.remote; p.server == "" {
		r.local = newStream(serverSeed, p.size)
	}
	if r.out, err = r.register(len(r.local)+p.qps*r.slotSize, 0); err != nil {
		return err
	}
	r.slots, err = r.register(p.qps*r.rx*r.slotSize, verbs.LocalWrite)
	return err
}

// exchangePingpong exchanges the addresses and connects the queue pairs. A server is connected
// before it sends its addresses, as the client's first message may follow at once.
func (r *run) exchangePingpong() error {
	n := 1
	if r.plan.test.srq {
		n = srqAddresses
	}
	var local []byte
	for i := range n {
		a := address{}
		if i < len(r.lanes) {
			a = r.lanes[i].local
		}
		local = a.appendPingpong(local)
	}
	remote := make([]byte, len(local))
	if r.ctl.client {
		if err := r.ctl.send(local, "address"); err != nil {
			return err
		}
	}
	if err := r.ctl.recv(remote, "address"); err != nil {
		return err
	}
	for i, l := range r.lanes {
		a, err := parsePingpong(remote[i*pingpongSize:][:pingpongSize])
		if err != nil {
			return fmt.Errorf("address of queue pair %d: %w", i, err)
		}
		l.remote = a
		if err := r.connect(l); err != nil {
			return err
		}
	}
	if r.ctl.client {
		return r.ctl.send([]byte(done), "end")
	}
	if err := r.ctl.send(local, "address"); err != nil {
		return err
	}
	var end [len(done)]byte
	return r.ctl.recv(end[:], "end")
}
