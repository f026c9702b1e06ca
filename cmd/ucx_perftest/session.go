package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/goucx/goucx/internal/cmdline"
	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/perf/report"
	"github.com/goucx/goucx/perf/rte"
	"github.com/goucx/goucx/ucp"
)

// session is one execution of the command: one connection, one or more runs.
type session struct {
	*options
	plan           *plan
	config         perf.Config
	picture        *picture // nil without --plot
	shown          bool     // the header is printed
	stdout, stderr io.Writer
}

// Kinds of records that the two commands exchange.
const (
	kindSession = "session"
	kindRun     = "run"
	kindReady   = "ready"
	kindEnd     = "end"
)

// opening is the body of a session record: what the client is going to run.
type opening struct {
	Params  perf.Params `json:"params"`
	Columns []string    `json:"columns,omitempty"`
	Runs    int         `json:"runs"`
	// Refused are the positions of the combined lines that the client does not run.
	Refused []int `json:"refused,omitempty"`
}

// opening returns the local opening.
func (s *session) opening() opening {
	o := opening{Params: s.Params, Columns: s.plan.columns, Runs: len(s.plan.runs())}
	for i, r := range s.plan.steps {
		if r.refused != nil {
			o.Refused = append(o.Refused, i)
		}
	}
	return o
}

func (o *options) rte() rte.Config {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return rte.Config{Port: o.port, IPv6: o.ipv6, Timeout: o.wait, Own: rte.Identity{Version: cmdline.BuildOf(cmdline.Info()).Version, Host: host, PID: os.Getpid()}}
}

// declineTimeout bounds how long a client that cannot run tries to reach its server.
const declineTimeout = time.Second

// decline reports to a server that waits for this client why the client cannot run, so that the server
// ends; best effort.
func (o *options) decline(err error) {
	c := o.rte()
	c.Timeout, c.Greet = min(c.Timeout, declineTimeout), declineTimeout
	if conn, derr := rte.Dial(context.Background(), o.host, c); derr == nil {
		conn.Fail(err)
		_ = conn.Close()
	}
}

// header returns the header above this session's results.
func header(o opening, box, results bool) report.Header {
	h := report.Header{Params: o.Params, Box: box, Results: results, Columns: o.Columns}
	if t, err := perf.Lookup(o.Params.Test); err == nil {
		h.Test = &t
	}
	return h
}

// form returns the output form of this side's results. It includes a progress line if stdout is a
// terminal.
func (s *session) form() report.Form {
	f := report.New(s.stdout, s.style)
	if isTerminal(s.stdout) && !s.style.CSV && !s.style.JSON {
		f = report.WithProgress(f, s.stdout)
	}
	if s.picture != nil {
		f = s.picture.form(f)
	}
	return f
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// notes prints on stderr what the figures of stream tests mean: beside CSV, and to people.
func (s *session) notes() {
	if s.quiet || s.style.JSON || !s.style.CSV && !isTerminal(s.stderr) {
		return
	}
	for _, r := range s.plan.runs() {
		t, err := perf.Lookup(r.options.Test)
		if err == nil && r.options.StampStride(t) > 1 {
			fmt.Fprintf(s.stderr, "ucx_perftest: note: %s is stamped at every 64th message, so its percentile is one of means; --stamp-each stamps every message as UCX's tool does\n", t.Name)
			return
		}
	}
}

// loopback runs everything within this process.
func (s *session) loopback() error {
	s.notes()
	f := s.form()
	h := header(s.opening(), true, true)
	runs := tally{runs: len(s.plan.steps), to: s.stderr}
	defer s.catchInterrupt(nil)()
	for _, r := range s.plan.steps {
		if f.Err() != nil || runs.interrupted {
			break
		}
		if r.refused != nil {
			runs.refuse(r.refused)
			continue
		}
		runs.end(r.wrapError(s.measure(f, h, rte.Loop{}, r)))
	}
	return s.finish(f, h, &runs)
}

// header prints the header of this session once, when the transports of its first run are known.
func (s *session) header(f report.Form, h report.Header, transports string) {
	if !s.shown {
		h.Transports = transports
		f.Header(h)
		s.shown = true
	}
}

// measure executes one run on the measuring side, whose first run prints the header h.
func (s *session) measure(f report.Form, h report.Header, g perf.Group, r step) error {
	c := s.config
	c.Connected = func(transports string) {
		s.header(f, h, transports)
		f.Begin(r.names, &r.options.Params)
		f.Transports(transports)
	}
	c.Rows = f.Row
	res, err := perf.Run(c, g, r.options.Params)
	if res != nil {
		f.End(res)
	}
	return err
}

// wrapError adds the run's name in a batch to err.
func (r step) wrapError(err error) error {
	if err == nil || len(r.names) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", strings.Join(r.names, "/"), err)
}

// finish ends the measuring side. It returns an error if runs failed or were refused.
func (s *session) finish(f report.Form, h report.Header, runs *tally) error {
	s.header(f, h, "") // if no run began
	if err := f.Err(); err != nil {
		return fmt.Errorf("print results: %w", err)
	}
	return runs.err()
}

// orInterrupted returns err, but perf.ErrInterrupted if the run was interrupted: the other side has ended
// because of it.
func (s *session) orInterrupted(err error) error {
	select {
	case <-s.config.Interrupt:
		if err != nil && !errors.Is(err, perf.ErrInterrupted) {
			return perf.ErrInterrupted
		}
	default:
	}
	return err
}

// client connects to the server and measures.
func (s *session) client() (err error) {
	conn, err := rte.Dial(context.Background(), s.host, s.rte())
	if err != nil {
		return err
	}
	defer s.catchInterrupt(conn)()
	defer func() { err = s.orInterrupted(err) }()
	defer func() { _ = conn.Close() }()
	if err := conn.Send(kindSession, s.opening()); err != nil {
		return err
	}
	s.notes()
	f := s.form()
	h := header(s.opening(), false, true)
	runs := tally{runs: len(s.plan.steps), to: s.stderr}
	left, ended := len(s.plan.runs()), false
	for _, r := range s.plan.steps {
		switch {
		case r.refused != nil:
			runs.refuse(r.refused)
			continue
		case ended || f.Err() != nil:
			continue
		}
		left--
		err := conn.Send(kindRun, r.options.Params)
		if err == nil {
			silent := time.AfterFunc(s.wait, func() {
				fmt.Fprintf(s.stderr, "ucx_perftest: the server, %s, has not answered for %v; still waiting\n", conn.Peer(), s.wait)
			})
			err = conn.Receive(kindReady, nil)
			silent.Stop()
		}
		if err != nil {
			return sendFailure(conn, r.wrapError(err))
		}
		err = cause(conn, s.measure(f, h, conn, r))
		err, broken := endRun(conn, err, left == 0 || errors.Is(err, perf.ErrInterrupted))
		runs.end(r.wrapError(cmp.Or(err, broken)))
		ended = broken != nil
	}
	if !ended {
		if err := conn.Send(kindEnd, nil); err != nil {
			return err
		}
	}
	return s.finish(f, h, &runs)
}

// endRun ends a run on both sides, so that the next one can begin. After a failed last run it does
// not wait.
func endRun(conn *rte.Conn, err error, last bool) (failure, broken error) {
	if err != nil && last {
		return sendFailure(conn, err), err
	}
	return conn.EndRun(err)
}

// sendFailure reports err to the other side, unless err came from there.
func sendFailure(conn *rte.Conn, err error) error {
	if _, fromPeer := errors.AsType[*rte.RemoteError](err); !fromPeer {
		conn.Fail(err)
	}
	return err
}

// reasonTimeout bounds how long a side whose peer has failed waits for that one's own reason.
const reasonTimeout = time.Second

// cause returns the other side's own reason, if that is why a run failed with err: an interruption, or
// what made it close its worker, which the transports here report as a failed peer.
func cause(conn *rte.Conn, err error) error {
	if errors.Is(err, perf.ErrInterrupted) {
		return err
	}
	failed := errors.Is(err, ucp.ErrPeerFailed)
	for end := time.Now().Add(reasonTimeout); err != nil; time.Sleep(time.Millisecond) {
		other := conn.Err()
		if r, ok := errors.AsType[*rte.RemoteError](other); ok && (failed || r.Interrupted()) {
			return r
		}
		if other != nil || !failed || time.Now().After(end) {
			break
		}
	}
	return err
}
