package main

import (
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/goucx/goucx/test/rxe/vm"
)

// agent runs jobs.
type agent struct {
	send    sync.Mutex // guards reports
	reports *gob.Encoder

	mu   sync.Mutex        // guards jobs
	jobs map[int]*exec.Cmd // each leads a process group
}

// report sends a message to the host. Where that fails the host is gone, and so is qemu.
func (a *agent) report(r *vm.Report) {
	a.send.Lock()
	defer a.send.Unlock()
	if err := a.reports.Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, "guest: report:", err)
	}
}

// beat sends empty reports, for ever.
func (a *agent) beat() {
	for {
		time.Sleep(vm.Heartbeat)
		a.report(&vm.Report{})
	}
}

// serve carries orders out until the host sends PowerOff or is gone.
func (a *agent) serve(orders *gob.Decoder) {
	for {
		var o vm.Order
		if err := orders.Decode(&o); err != nil {
			fmt.Fprintln(os.Stderr, "guest: order:", err)
			return
		}
		switch {
		case o.PowerOff:
			return
		case o.Job != nil:
			a.start(o.ID, o.Job)
		case o.File != "":
			if err := os.WriteFile(o.File, o.Content, 0o755); err != nil {
				fmt.Fprintln(os.Stderr, "guest:", err)
			}
		default:
			a.signal(o.ID, syscall.Signal(o.Signal))
		}
	}
}

// start starts a job, so that orders that follow find it, and has it reported when it ends.
func (a *agent) start(id int, j *vm.Job) {
	argv := j.Argv
	if j.Peer {
		argv = append([]string{"ip", "netns", "exec", "peer"}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = append(os.Environ(), j.Env...), j.Dir
	cmd.Stdout = writer(func(b []byte) { a.report(&vm.Report{ID: id, Out: b}) })
	cmd.Stderr = writer(func(b []byte) { a.report(&vm.Report{ID: id, Err: b}) })
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // for children that outlive the program and hold its stdout
	began := time.Now()
	a.mu.Lock()
	err := cmd.Start()
	if err == nil {
		a.jobs[id] = cmd
	}
	a.mu.Unlock()
	if err != nil {
		a.report(&vm.Report{ID: id, End: &vm.Result{Status: -1, Failure: err.Error()}})
		return
	}
	limit := time.AfterFunc(j.Limit, func() { a.signal(id, syscall.SIGKILL) })
	go func() {
		err := cmd.Wait()
		limit.Stop()
		a.mu.Lock()
		delete(a.jobs, id)
		a.mu.Unlock()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // children that are left
		a.report(&vm.Report{ID: id, End: ended(cmd, err, time.Since(began), j.Limit)})
	}()
}

// ended describes how a program ended; err is of its Wait.
func ended(cmd *exec.Cmd, err error, took, limit time.Duration) *vm.Result {
	end := &vm.Result{Status: cmd.ProcessState.ExitCode(), Took: took}
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		end.Signal = w.Signal().String()
		end.TimedOut = w.Signal() == syscall.SIGKILL && took >= limit
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited && !errors.Is(err, exec.ErrWaitDelay) {
		end.Failure = err.Error()
	}
	return end
}

// signal sends a signal to a job's process group.
func (a *agent) signal(id int, s syscall.Signal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cmd := a.jobs[id]; cmd != nil {
		_ = syscall.Kill(-cmd.Process.Pid, s) // it may have ended
	}
}

// writer calls a function for each piece of output.
type writer func([]byte)

// Write implements io.Writer.
func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}
