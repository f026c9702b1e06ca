package goucx_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

// Two workers of one process exchange a message. Between processes the address
// travels by any means: a file, a socket, an environment variable.
func Example() {
	ctx := context.Background()
	c, err := goucx.Open(ucp.Config{}) // every transport; settings from files and UCX_* variables
	check(err)
	defer c.Close()
	alice, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)
	bob, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)

	ep, err := alice.NewEndpoint(bob.Address(), ucp.EndpointConfig{}) // sends nothing yet
	check(err)
	sent := ep.TagSend([]byte("hello"), 7) // connects, and is on its way

	buf := make([]byte, 64)
	m, err := bob.TagRecv(buf, 7, ^ucp.Tag(0)).Wait(ctx) // drives bob until it is there
	check(err)
	check(sent.Wait(ctx))
	fmt.Printf("%s, %d bytes, tag %d\n", buf[:m.Len], m.Len, m.Tag)
	// Output: hello, 5 bytes, tag 7
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
