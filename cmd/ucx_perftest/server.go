package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/perf/rte"
)

// server waits for one client, does what it asks for, and ends, as UCX's tool
// does.
func (s *session) server() error {
	say := s.stdout
	if s.style.JSON {
		say = s.stderr
	}
	l, err := rte.Listen(s.rte())
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	fmt.Fprintln(say, "Waiting for connection...")
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	fmt.Fprintf(say, "Accepted connection from %s\n", conn.Remote())
	if err := l.Greet(conn); err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := s.serve(conn, say); err != nil {
		return giveUp(conn, err)
	}
	return nil
}

// serve takes the client's runs until it ends the session.
func (s *session) serve(conn *rte.Conn, say io.Writer) error {
	var o opening
	if err := conn.Receive(kindSession, &o); err != nil {
		return err
	}
	if n := len(s.plan.runs()); len(s.plan.columns) > 0 && n != o.Runs {
		return s.mismatch(conn, fmt.Sprintf("%d runs here and %d there", n, o.Runs))
	}
	if !s.style.JSON {
		f := s.form()
		f.Header(header(o, true, false))
	}
	for i := 0; ; i++ {
		var p perf.Params
		kind, err := conn.ReceiveAny(map[string]any{kindRun: &p, kindEnd: nil})
		if err != nil || kind == kindEnd {
			return err
		}
		if d := s.demands(i).differences(p); len(d) > 0 {
			return s.mismatch(conn, strings.Join(d, ", "))
		}
		if err := conn.Send(kindReady, nil); err != nil {
			return err
		}
		if _, err := perf.Run(s.config, conn, p); err != nil {
			return err
		}
	}
}

// demands are the options that this side insists on in run i.
func (s *session) demands(i int) *options {
	if rs := s.plan.runs(); len(s.plan.columns) > 0 && i < len(rs) {
		return rs[i].options
	}
	return s.options
}

// mismatch names both sides.
func (s *session) mismatch(conn *rte.Conn, what string) error {
	return fmt.Errorf("the sides disagree: %s (here is the server, %s; there the client, %s)", what, s.rte().Own, conn.Peer())
}
