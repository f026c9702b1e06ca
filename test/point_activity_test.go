//go:build linux

package test

import (
	"context"
	"fmt"
	"time"

	"github.com/goucx/goucx/ucp"
)

// announced is long enough for a rendezvous, and not so long that twenty of them
// take long where each ring-full waits for a processor.
const announced = 100 << 10

// activities are what two sides do with each other: one the first, the other the
// second of a pair. They end with the error of the wait that failed.
var activities = map[string]func(*side) error{
	"send short":  func(v *side) error { return v.send(16) },
	"send bulk":   func(v *side) error { return v.send(3000) },
	"send long":   func(v *side) error { return v.send(announced) },
	"send mapped": func(v *side) error { return v.send(announced) },
	"send sync":   (*side).sendSync,
	"send am":     (*side).sendAM,
	"receive am":  (*side).receiveAM,
	"receive":     (*side).receive,

	"receive mapped": (*side).receive,

	"begin":        func(v *side) error { return v.talk(true, 64, (*side).poll) },
	"ping":         func(v *side) error { return v.talk(true, messageHead, (*side).poll) },
	"pong":         func(v *side) error { return v.talk(false, messageHead, (*side).poll) },
	"alternate":    func(v *side) error { return v.talk(true, 64, (*side).pollInTurn) },
	"answer":       func(v *side) error { return v.talk(false, 64, (*side).poll) },
	"sleep":        func(v *side) error { return v.talk(false, 64, (*side).sleepFor) },
	"open, close":  (*side).openClose,
	"receive any":  (*side).receiveAny,
	"receive late": (*side).receiveLate,
	"flood":        (*side).flood,
}

// send sends numbered messages of a length, or of several.
func (v *side) send(n int) error {
	v.post()
	buf := v.buffer(big)
	for k := uint64(0); ; k++ {
		p := buf[:n]
		fill(p, 1, k)
		if err := v.end(v.out.TagSend(p, tagStream)); err != nil {
			return err
		}
	}
}

// end waits for a request that makes a round.
func (v *side) end(r ucp.Request) error {
	if err := v.wait(r.Wait); err != nil {
		return err
	}
	v.w.Progress()
	v.round()
	return nil
}

// sendSync sends long messages whose receipt is told.
func (v *side) sendSync() error {
	v.post()
	buf := make([]byte, announced)
	for k := uint64(0); ; k++ {
		fill(buf, 1, k)
		if err := v.end(v.out.TagSendSync(buf, tagStream)); err != nil {
			return err
		}
	}
}

const amStream ucp.AMID = 7

// sendAM sends long active messages.
func (v *side) sendAM() error {
	v.post()
	buf := v.buffer(announced)
	for k := uint64(0); ; k++ {
		fill(buf, 1, k)
		if err := v.end(v.out.AMSend(amStream, []byte("header"), buf)); err != nil {
			return err
		}
	}
}

// receiveAM fetches what sendAM sends.
func (v *side) receiveAM() error {
	var offers []ucp.RetainedAM
	check(v.w.HandleAM(amStream, func(m *ucp.AM) { offers = append(offers, m.Retain()) }))
	v.post()
	buf := v.buffer(big)
	for k := uint64(0); ; k++ {
		err := v.wait(func(ctx context.Context) error {
			return v.w.WaitUntil(ctx, func() bool { return len(offers) > 0 || v.standing[0].Done() })
		})
		if err != nil {
			return err
		}
		if len(offers) == 0 {
			return v.standing[0].Err()
		}
		r := offers[0].RecvInto(buf)
		offers = offers[1:]
		if err := v.fetch(r, buf, k); err != nil {
			return err
		}
	}
}

// fetch waits for message k, which is on its way into buf.
func (v *side) fetch(r ucp.RecvRequest, buf []byte, k uint64) error {
	err := v.wait(func(ctx context.Context) error {
		_, err := r.Wait(ctx)
		return err
	})
	if err != nil {
		return err
	}
	_, got, err := read(buf[:announced])
	check(err)
	if got != k {
		check(&orderError{got, k})
	}
	v.round()
	return nil
}

// take receives message k.
func (v *side) take(buf []byte, tag ucp.Tag, k uint64) error {
	got, err := v.takeAny(buf, tag)
	if err == nil && got != k {
		check(&orderError{got, k})
	}
	return err
}

// takeAny receives a message whole and gives its number.
func (v *side) takeAny(buf []byte, tag ucp.Tag) (k uint64, err error) {
	r := v.w.TagRecv(buf, tag, allBits).Tie(v.e)
	var m ucp.Message
	err = v.wait(func(ctx context.Context) (err error) {
		m, err = r.Wait(ctx)
		return err
	})
	if err != nil {
		return 0, err
	}
	_, k, err = read(buf[:m.Len])
	check(err)
	v.round()
	return k, nil
}

// receive takes what send sends, each message once, whole and in order.
func (v *side) receive() error {
	v.post()
	buf := v.buffer(big)
	for k := uint64(0); ; k++ {
		if err := v.take(buf, tagStream, k); err != nil {
			return err
		}
	}
}

// receiveAny takes what openClose sends: endpoints that follow each other promise
// no order.
func (v *side) receiveAny() error {
	v.post()
	buf, seen := make([]byte, big), make(map[uint64]bool)
	for {
		k, err := v.takeAny(buf, tagStream)
		if err != nil {
			return err
		}
		if seen[k] {
			check(fmt.Errorf("message %d came twice", k))
		}
		seen[k] = true
	}
}

// receiveLate lets messages pile up before it takes them.
func (v *side) receiveLate() error {
	v.post()
	buf := make([]byte, big)
	for k := uint64(0); ; k++ {
		if k%1000 == 0 {
			for range 1000 { // system calls: time for the other
				cpuYield()
			}
		}
		if err := v.take(buf, tagStream, k); err != nil {
			return err
		}
	}
}

// flood has many sends under way.
func (v *side) flood() error {
	v.post()
	const window = 300
	var bufs [window][200]byte
	var sent [window]ucp.Request
	for k := uint64(0); ; k++ {
		i := k % window
		if err := v.end(sent[i]); err != nil {
			return err
		}
		fill(bufs[i][:], 1, k)
		sent[i] = v.out.TagSend(bufs[i][:], tagStream)
	}
}

// talk exchanges single messages; wait waits for one.
func (v *side) talk(begin bool, n int, wait func(*side, ucp.RecvRequest) error) error {
	v.post()
	buf, out := make([]byte, big), make([]byte, n)
	for k := uint64(0); ; k++ {
		fill(out, 1, k)
		r := v.w.TagRecv(buf, tagPing, allBits).Tie(v.e)
		if begin {
			if err := v.wait(v.out.TagSendInline(out, tagPing).Wait); err != nil {
				r.Drop()
				return err
			}
		}
		if err := wait(v, r); err != nil {
			return err
		}
		_, got, err := read(buf[:len(out)])
		check(err)
		if got != k {
			check(&orderError{got, k})
		}
		if !begin {
			if err := v.wait(v.out.TagSendInline(out, tagPing).Wait); err != nil {
				return err
			}
		}
		v.round()
	}
}

// poll waits without sleeping of its own.
func (v *side) poll(r ucp.RecvRequest) error {
	return v.wait(func(ctx context.Context) error {
		_, err := r.Wait(ctx)
		return err
	})
}

// pollInTurn leaves the peer alone for another one, for longer than a connection takes to be idle.
func (v *side) pollInTurn(r ucp.RecvRequest) error {
	err := v.poll(r)
	if err == nil {
		check(pingPong(context.Background(), v.w, v.bystands, 3))
		for idle := time.Now().Add(60 * time.Millisecond); time.Now().Before(idle); {
			v.w.Progress()
		}
	}
	return err
}

// sleepFor arms the worker whenever there is nothing to do.
func (v *side) sleepFor(r ucp.RecvRequest) error {
	err := v.wait(func(ctx context.Context) error {
		for !r.Done() {
			if err := v.sleep(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = r.Wait(v.ctx)
	return err
}

// openClose sends each message over an endpoint of its own, which it closes.
func (v *side) openClose() error {
	v.say("posted") // the endpoints come and go: nothing is tied
	buf := make([]byte, 200)
	for k := uint64(0); ; k++ {
		fill(buf, 1, k)
		r := v.out.TagSend(buf, tagStream)
		if err := v.wait(r.Wait); err != nil {
			return err
		}
		if err := v.wait(func(context.Context) error { return v.reopen() }); err != nil {
			return err
		}
		v.w.Progress()
		v.round()
	}
}

// reopen closes the endpoint, which takes long where the peer stands still.
func (v *side) reopen() error {
	err := v.closePeer()
	v.connectPeer()
	if err != nil && context.Cause(v.ctx) != nil {
		return context.Cause(v.ctx)
	}
	return err
}
