// Command amecho runs a server that echoes active messages to their senders, each on its own
// goroutine. Its client sends some messages and checks the replies. The server writes its address
// to a file and stops on Ctrl-C.
//
//	go run ./examples/amecho --file /tmp/address &
//	go run ./examples/amecho --file /tmp/address --client
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

// Handler IDs of the server and of the client.
const (
	amRequest ucp.AMID = iota
	amReply
)

func main() {
	file := pflag.String("file", "", "where the server's address is")
	client := pflag.Bool("client", false, "be the client")
	messages := pflag.Int("messages", 1000, "how many the client sends")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *file, *client, *messages); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, file string, client bool, messages int) (err error) {
	if file == "" {
		return errors.New("need --file")
	}
	x, err := goucx.Open(ucp.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }() // flushes, with a time limit
	w, err := x.NewWorker(ucp.WorkerConfig{})            // may be used by any goroutine
	if err != nil {
		return err
	}
	if client {
		return sendAndCheck(ctx, w, file, messages)
	}
	return serve(ctx, w, file)
}

// serve echoes until ctx ends.
func serve(ctx context.Context, w *ucp.Worker, file string) error {
	var busy sync.WaitGroup
	err := w.HandleAM(amRequest, func(m *ucp.AM) {
		from, k := m.From, m.Retain() // m is valid until this call returns, k until Release
		busy.Go(func() {
			if err := echo(ctx, from, k); err != nil {
				log.Print(err)
			}
		})
	})
	if err != nil {
		return err
	}
	if err := writeAddress(file, w.Address()); err != nil {
		return err
	}
	defer os.Remove(file) //nolint:errcheck // no longer needed
	err = w.Run(ctx)      // drives the worker for all goroutines, blocks when there is nothing to do
	busy.Wait()
	if ctx.Err() != nil {
		return nil // stopped by the user
	}
	return err
}

// echo sends the message back to its sender.
func echo(ctx context.Context, from ucp.Endpoint, k ucp.RetainedAM) error {
	data := k.Bytes()
	header := bytes.Clone(k.Header())
	if data == nil && k.Len() > 0 { // a long message remains at its sender until it is fetched
		data = make([]byte, k.Len())
		if _, err := k.RecvInto(data).Finish(ctx); err != nil {
			return err
		}
	} else {
		defer k.Release() // safe: Finish returns only when its memory is no longer in use
	}
	return from.AMSend(amReply, header, data).Finish(ctx)
}

// client is the state that ask and its handler share. The handler runs where the worker is driven.
type client struct {
	back chan error // one value for each reply
}

// sendAndCheck sends messages of many lengths and waits for each reply.
func sendAndCheck(ctx context.Context, w *ucp.Worker, file string, messages int) error {
	server, err := readAddress(ctx, file)
	if err != nil {
		return err
	}
	c := &client{make(chan error, messages+1)}
	if err := w.HandleAM(amReply, c.take); err != nil {
		return err
	}
	e, err := w.NewEndpoint(server, ucp.EndpointConfig{OnFailure: func(_ ucp.Endpoint, err error) { c.back <- err }})
	if err != nil {
		return err
	}
	go w.Run(ctx) //nolint:errcheck // ends with ctx, or with the worker
	began := time.Now()
	for n := range messages {
		header := binary.LittleEndian.AppendUint32(nil, uint32(n))
		sent := e.AMSendWith(amRequest, header, payload(n), ucp.Opts{Flags: ucp.WantReply}) // the server receives this client's address
		if err := sent.Wait(ctx); err != nil {
			return err
		}
	}
	for range messages {
		select {
		case err := <-c.back:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	fmt.Printf("%d messages came back, all right, in %v\n", messages, time.Since(began).Round(time.Microsecond))
	return nil
}

// take is the handler of replies.
func (c *client) take(m *ucp.AM) {
	if len(m.Header) != 4 {
		c.back <- fmt.Errorf("a header of %d bytes", len(m.Header))
		return
	}
	want := payload(int(binary.LittleEndian.Uint32(m.Header)))
	if m.Rendezvous {
		got := make([]byte, m.Len)
		fetch := m.Retain().RecvInto(got)
		check := func(err error) { c.back <- errors.Join(err, compare(got, want)) }
		if !fetch.Notify(func(d ucp.Completion) { check(d.Err) }, 0) { // complete already
			check(fetch.Err())
			fetch.Drop()
		}
		return
	}
	c.back <- compare(m.Data, want)
}

func compare(got, want []byte) error {
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes came back wrong, %d were sent", len(got), len(want))
	}
	return nil
}

// payload returns the data of message n: nothing, some, and now and then very much.
func payload(n int) []byte {
	size := n * 37 % 5000
	if n%100 == 99 {
		size = 1 << 20
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i + n)
	}
	return b
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
