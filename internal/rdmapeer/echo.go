package main

import "fmt"

// echoes exchanges the messages of ibv_*_pingpong. A queue pair sends when its last message is
// complete and one has arrived. Both sides count the messages of all queue pairs together.
//
// The programs send from the buffer that they receive into, so that a client gets back what it
// sent. A server gets back what it sent with the next message. An rdmapeer as server sends what an
// rdmapeer as client has sent.
func (r *run) echoes() error {
	r.onReceive = r.checkEcho
	r.start()
	defer r.stop()
	if r.plan.server != "" {
		for _, l := range r.lanes {
			if err := r.echo(l); err != nil {
				return err
			}
		}
	}
	for r.received < r.plan.iters || r.sent < r.plan.iters {
		if err := r.progress(); err != nil {
			return fmt.Errorf("after %d messages sent and %d received of %d: %w", r.sent, r.received, r.plan.iters, err)
		}
		for _, l := range r.lanes {
			due := l.received
			if r.plan.server != "" {
				due++ // its first message needs none of the peer
			}
			if r.sent < r.plan.iters && l.sent == l.posted && l.posted < due {
				if err := r.echo(l); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// echo sends the next message of a queue pair.
func (r *run) echo(l *lane) error {
	s := r.local
	if r.sameProgram {
		s = r.remote
	}
	copy(r.out.Bytes()[r.scratch(l):], r.echoed(s, l, l.posted))
	return r.post(l)
}

// echoed returns message k of a queue pair in a stream. With a shared receive queue all messages
// are the same, as all queue pairs of the program have one buffer.
func (r *run) echoed(s stream, l *lane, k int) []byte {
	if r.plan.srq {
		return s.message(0, 0, r.plan.size)
	}
	return s.message(l.index, k, r.plan.size)
}

// checkEcho checks message k of the peer.
func (r *run) checkEcho(l *lane, k int, b []byte) error {
	what := fmt.Sprintf("message %d of queue pair %d", k, l.index)
	r.verified++
	remote := r.echoed(r.remote, l, k)
	if r.plan.server == "" && r.received == 0 {
		r.sameProgram = string(b) == string(remote)
	}
	switch {
	case r.plan.server != "" || r.sameProgram:
		return compare(b, remote, what)
	case k > 0:
		return compare(b, r.echoed(r.local, l, k-1), what+", which repeats the last one to the peer")
	default:
		return r.checkFirst(l, b, what)
	}
}

// checkFirst checks the first message of a foreign client: what it fills its buffer with. Option
// -c of the programs clears the first byte of each page. With a shared receive queue messages to
// other queue pairs may have arrived in the buffer.
func (r *run) checkFirst(l *lane, b []byte, what string) error {
	sent := r.echoed(r.local, l, 0)
	for i, c := range b {
		ok := c == filled || c == 0 && i%pageSize == 0
		if r.plan.srq {
			ok = c == 0 || c == sent[i]
		}
		if !ok {
			return fmt.Errorf("%s: byte %d is %#02x, which no client begins with: %w", what, i, c, errData)
		}
	}
	return nil
}
