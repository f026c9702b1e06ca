package ucp_test

import (
	"context"
	"fmt"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

// Bob does not know how long Alice's message is: he takes it, makes room, and
// receives. Only then Alice's synchronous send ends.
func ExampleWorker_TagMprobe() {
	c, err := goucx.Open(ucp.Config{})
	check(err)
	defer c.Close()
	_, bob, ep := pairOf(c)

	sent := ep.TagSendSync([]byte("as long as it is"), 0x1_0007)
	var msg ucp.MatchedMessage
	check(bob.WaitUntil(context.Background(), func() (ok bool) {
		msg, ok = bob.TagMprobe(0x7, 0xffff) // whatever the upper bits say
		return ok
	}))
	fmt.Printf("tag %#x, %d bytes, sent: %v\n", uint64(msg.Tag), msg.Len, sent.Done())

	buf := make([]byte, msg.Len)
	_, err = msg.Recv(buf).Wait(context.Background())
	check(err)
	check(sent.Wait(context.Background()))
	fmt.Printf("%s, sent: %v\n", buf, sent.Done())
	// Output:
	// tag 0x10007, 16 bytes, sent: false
	// as long as it is, sent: true
}

// A receive that is canceled gives its buffer back at once, also from a message
// that is being transferred; the sender learns of it.
func ExampleRequest_Cancel() {
	c, err := goucx.Open(ucp.Config{})
	check(err)
	defer c.Close()
	_, bob, _ := pairOf(c)

	buf := make([]byte, 8)
	r := bob.TagRecv(buf, 1, ^ucp.Tag(0))
	r.Cancel()
	_, err = r.Wait(context.Background())
	fmt.Println(err)
	// Output: tag receive: canceled
}
