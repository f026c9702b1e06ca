// Command pingpong measures the time of an 8-byte message between two processes. Without the flag
// --client it is the server, which writes its address to a file; with it, it is the client.
//
//	go run ./examples/pingpong --file /tmp/address &
//	go run ./examples/pingpong --file /tmp/address --client
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/pflag"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

const (
	tagHello ucp.Tag = iota // the client's address
	tagPing
	tagPong
	anyBit = ^ucp.Tag(0)
)

func main() {
	file := pflag.String("file", "", "where the server's address is")
	client := pflag.Bool("client", false, "be the client")
	rounds := pflag.Uint64("rounds", 100_000, "round trips")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *file, *client, *rounds); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, file string, client bool, rounds uint64) (err error) {
	if file == "" || rounds == 0 {
		return errors.New("need --file and at least one round")
	}
	x, err := goucx.Open(ucp.Config{Features: ucp.FeatureTag})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	w, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	if err != nil {
		return err
	}
	if client {
		return ping(ctx, w, file, rounds)
	}
	return pong(ctx, w, file, rounds)
}

// ping is the client.
func ping(ctx context.Context, w *ucp.Worker, file string, rounds uint64) error {
	server, err := readAddress(ctx, file)
	if err != nil {
		return err
	}
	e, err := w.NewEndpoint(server, ucp.EndpointConfig{})
	if err != nil {
		return err
	}
	if err := e.TagSend(w.Address(), tagHello).Wait(ctx); err != nil {
		return err
	}
	buf, began := make([]byte, 8), time.Now()
	for n := range rounds {
		recv := w.TagRecv(buf, tagPong, anyBit).Tie(e)
		e.TagSendUint64(n, tagPing) // dropped, which is permitted: the receive reports a failure
		if _, err := recv.Wait(ctx); err != nil {
			return err
		}
		if got := binary.LittleEndian.Uint64(buf); got != n {
			return fmt.Errorf("round %d: %d came back", n, got)
		}
	}
	fmt.Printf("%d round trips, half of one: %v\n", rounds, time.Since(began)/time.Duration(2*rounds))
	return e.Close()
}

// pong is the server of one client.
func pong(ctx context.Context, w *ucp.Worker, file string, rounds uint64) error {
	if err := writeAddress(file, w.Address()); err != nil {
		return err
	}
	defer os.Remove(file) //nolint:errcheck // no longer needed
	hello := make([]byte, 4096)
	m, err := w.TagRecv(hello, tagHello, anyBit).Wait(ctx)
	if err != nil {
		return err
	}
	e, err := w.NewEndpoint(hello[:m.Len], ucp.EndpointConfig{})
	if err != nil {
		return err
	}
	buf := make([]byte, 8)
	for range rounds {
		if _, err := w.TagRecv(buf, tagPing, anyBit).Tie(e).Wait(ctx); err != nil {
			return err
		}
		e.TagSendUint64(binary.LittleEndian.Uint64(buf), tagPong)
	}
	return e.Close() // after the messages that were sent
}

// writeAddress creates the file atomically.
func writeAddress(file string, a ucp.Address) error {
	draft := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := os.WriteFile(draft, a, 0o600); err != nil {
		return err
	}
	return os.Rename(draft, file)
}

// readAddress waits for the file.
func readAddress(ctx context.Context, file string) (ucp.Address, error) {
	for {
		a, err := os.ReadFile(file)
		if !errors.Is(err, fs.ErrNotExist) {
			return a, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
