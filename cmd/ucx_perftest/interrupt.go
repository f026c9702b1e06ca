package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/goucx/goucx/perf/rte"
)

// stopTimeout bounds how long an interrupted client continues: a run ends within a second, and the
// transports close.
const stopTimeout = 3 * time.Second

// catchInterrupt makes the first SIGINT end the run, so that the measuring side prints its final row
// and both sides report why. A second one, or one to a server, ends the process at once. conn is nil
// without another side. After restore SIGINT ends the process as before. An ignored SIGINT, as of a
// shell's background job, stays so.
func (s *session) catchInterrupt(conn *rte.Conn) (restore func()) {
	if signal.Ignored(os.Interrupt) {
		return func() {}
	}
	signals, done, interrupt := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, os.Interrupt)
	s.config.Interrupt = interrupt
	go func() {
		select {
		case <-signals:
		case <-done:
			return
		}
		if s.host != "" || s.options.loopback {
			close(interrupt)
			if conn != nil {
				conn.Interrupt() // the other side does not wait, and this one stops when it does
			}
			select {
			case <-signals:
			case <-time.After(stopTimeout):
			case <-done:
				return
			}
		}
		if conn != nil {
			conn.Interrupt()
		}
		fmt.Fprintln(s.stderr, "ucx_perftest: interrupted")
		dieInterrupted()
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// dieInterrupted ends the process by SIGINT, so that a shell's loop ends too.
func dieInterrupted() {
	signal.Reset(os.Interrupt)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // until the signal arrives
	os.Exit(130)
}
