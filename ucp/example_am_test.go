package ucp_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

// pairOf gives two workers, each served by a goroutine, and an endpoint from the
// first to the second.
func pairOf(c *ucp.Context) (alice, bob *ucp.Worker, ep ucp.Endpoint) {
	alice, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)
	bob, err = c.NewWorker(ucp.WorkerConfig{})
	check(err)
	for _, w := range []*ucp.Worker{alice, bob} {
		go func() { _ = w.Run(context.Background()) }() // until the worker closes
	}
	ep, err = alice.NewEndpoint(bob.Address(), ucp.EndpointConfig{})
	check(err)
	return alice, bob, ep
}

// Alice asks, Bob's handler answers: neither posts a receive.
func ExampleEndpoint_AMSend() {
	c, err := goucx.Open(ucp.Config{})
	check(err)
	defer c.Close()
	alice, bob, ep := pairOf(c)

	const question, answer = 1, 2
	check(bob.HandleAM(question, func(m *ucp.AM) {
		// The header is copied by AMSend; m.Data would have to be kept.
		m.From.AMSend(answer, m.Header, []byte("42"))
	}))
	done := make(chan string)
	check(alice.HandleAM(answer, func(m *ucp.AM) {
		done <- fmt.Sprintf("%s %s", m.Header, m.Data)
	}))
	ep.AMSendWith(question, []byte("life?"), nil, ucp.Opts{Flags: ucp.WantReply})
	fmt.Println(<-done)
	// Output: life? 42
}

// A message ends with its handler, unless it is kept.
func ExampleAM_Retain() {
	c, err := goucx.Open(ucp.Config{})
	check(err)
	defer c.Close()
	_, bob, ep := pairOf(c)

	work := make(chan ucp.RetainedAM, 8)
	check(bob.HandleAM(1, func(m *ucp.AM) { work <- m.Retain() }))
	ep.AMSend(1, []byte("job 7"), []byte("data of the job"))

	k := <-work // on any goroutine, as long as it likes
	fmt.Printf("%s: %s\n", k.Header(), k.Bytes())
	k.Release()
	// Output: job 7: data of the job
}

// Long data stays with its sender until the receiver has a place for it.
func ExampleRetainedAM_RecvInto() {
	c, err := goucx.Open(ucp.Config{})
	check(err)
	defer c.Close()
	_, bob, ep := pairOf(c)

	offers := make(chan ucp.RetainedAM, 8)
	check(bob.HandleAM(1, func(m *ucp.AM) {
		if m.Rendezvous { // else the data is in m.Data
			offers <- m.Retain()
		}
	}))
	ctx := context.Background()
	first := ep.AMSend(1, []byte("matrix"), make([]byte, 1<<20))
	second := ep.AMSend(1, []byte("another"), make([]byte, 1<<20))

	k := <-offers
	buf := make([]byte, k.Len())
	m, err := k.RecvInto(buf).Wait(ctx)
	check(err)
	check(first.Wait(ctx))
	fmt.Println(m.Len, "bytes")

	(<-offers).Refuse(errors.New("one is enough"))
	err = second.Wait(ctx)
	fmt.Println(errors.Is(err, ucp.ErrRejected))
	// Output:
	// 1048576 bytes
	// true
}

// Handlers are set, replaced and removed by number.
func ExampleWorker_HandleAM() {
	c, err := goucx.Open(ucp.Config{})
	check(err)
	defer c.Close()
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	check(err)
	self, err := w.NewEndpoint(w.Address(), ucp.EndpointConfig{})
	check(err)

	sum := 0
	check(w.HandleAM(1, func(m *ucp.AM) { sum += len(m.Data) }))
	self.AMSend(1, nil, []byte("seven b"))
	self.AMSend(1, nil, []byte("five5"))
	check(w.WaitUntil(context.Background(), func() bool { return sum == 12 }))
	check(w.HandleAM(1, nil))
	fmt.Println(sum)
	// Output: 12
}
