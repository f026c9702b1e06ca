package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/perf/rte"
)

// server accepts one client, executes its runs, and exits, as UCX's tool does.
func (s *session) server() error {
	say := s.stdout
	if s.style.JSON {
		say = s.stderr
	}
	l, err := rte.Listen(s.rte())
	if err != nil {
		return fmt.Errorf("%w; -p chooses another port", err)
	}
	defer func() { _ = l.Close() }()
	fmt.Fprintln(say, "Waiting for connection...")
	conn, err := l.Accept(func(err error) {
		fmt.Fprintf(s.stderr, "ucx_perftest: %v; still waiting\n", err)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(say, "Accepted connection from %s\n", conn.Remote())
	defer func() { _ = conn.Close() }()
	defer s.catchInterrupt(conn)()
	if err := s.serve(conn, say); err != nil {
		return sendFailure(conn, err)
	}
	return nil
}

// serve executes the client's runs until the client ends the session.
func (s *session) serve(conn *rte.Conn, say io.Writer) error {
	var o opening
	if err := conn.Receive(kindSession, &o); err != nil {
		return err
	}
	s.plan.remove(o.Refused)
	if n := len(s.plan.steps); len(s.plan.columns) > 0 && n != o.Runs {
		return s.mismatch(conn, fmt.Sprintf("%d runs here and %d there", n, o.Runs))
	}
	c := s.config
	if !s.style.JSON {
		f := s.form()
		c.Connected = func(transports string) {
			s.header(f, header(o, true, false), transports)
			f.Transports(transports)
		}
	}
	runs := tally{runs: o.Runs, to: s.stderr}
	for i := 0; ; i++ {
		var p perf.Params
		kind, err := conn.ReceiveAny(map[string]any{kindRun: &p, kindEnd: nil})
		if err != nil {
			return err
		}
		if kind == kindEnd {
			return runs.err()
		}
		if d := s.stepAt(i).options.differences(p); len(d) > 0 {
			return s.mismatch(conn, strings.Join(d, ", "))
		}
		if err := conn.Send(kindReady, nil); err != nil {
			return err
		}
		_, err = perf.Run(c, conn, p)
		err = cause(conn, err)
		err, broken := endRun(conn, err, i == o.Runs-1)
		runs.end(s.stepAt(i).wrapError(cmp.Or(err, broken)))
		if broken != nil {
			return runs.err()
		}
	}
}

// stepAt returns run i if this side has the batch files too; else a step with the options of the
// command line.
func (s *session) stepAt(i int) step {
	if len(s.plan.columns) > 0 && i < len(s.plan.steps) {
		return s.plan.steps[i]
	}
	return step{options: s.options}
}

// mismatch returns an error that names both sides.
func (s *session) mismatch(conn *rte.Conn, what string) error {
	return fmt.Errorf("the sides disagree: %s (here is the server, %s; there the client, %s)", what, s.rte().Own, conn.Peer())
}
