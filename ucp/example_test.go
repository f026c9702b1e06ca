package ucp_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

// Alice writes into Bob's memory without Bob's doing. Between processes address
// and key travel by any means.
func ExampleRemoteKey_Put() {
	c, err := goucx.Open(ucp.Config{Features: ucp.FeatureRMA})
	check(err)
	defer c.Close()
	alice, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)
	bob, err := c.NewWorker(ucp.WorkerConfig{})
	check(err)
	mem, err := c.Allocate(4096, ucp.MemConfig{}) // Bob's, for peers to use
	check(err)

	ep, err := alice.NewEndpoint(bob.Address(), ucp.EndpointConfig{})
	check(err)
	key, err := ep.UnpackKey(mem.Key())
	check(err)
	key.Put([]byte("hello"), 100) // may still be on its way, so Flush tells how all ended
	flushed := ep.Flush()
	for !flushed.Done() {
		alice.Progress()
		bob.Progress()
	}
	check(flushed.Wait(context.Background()))
	fmt.Printf("%s\n", mem.Bytes()[100:105])
	// Output: hello
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
