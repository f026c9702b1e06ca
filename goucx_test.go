package goucx_test

import (
	"context"
	"fmt"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

// Two workers of one process exchange a message. Between processes the address
// travels by any means: a file, a socket, an environment variable.
func Example() {
	ctx := context.Background()
	c, err := goucx.Open(ucp.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	a, err := c.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := c.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}

	const greeting ucp.Tag = 1
	ep, err := a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	sent := ep.TagSend([]byte("hello"), greeting)

	buf := make([]byte, 64)
	m, err := b.TagRecv(buf, greeting, ^ucp.Tag(0)).Wait(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s, tag %d\n", buf[:m.Len], m.Tag)
	fmt.Println(sent.Wait(ctx))
	// Output:
	// hello, tag 1
	// <nil>
}
