package vm

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Process is a job that was started. Any goroutine may call its methods.
type Process struct {
	m    *Machine
	id   int
	job  Job
	done chan struct{} // closed when result or failure is set

	out, err []byte // written by Machine.receive alone
	result   Result
	failure  error
}

// Start starts a job and does not wait for it. That the program does not exist is seen in its Result.
func (m *Machine) Start(job Job) (*Process, error) {
	if len(job.Argv) == 0 {
		return nil, errors.New("job without a program")
	}
	if job.Name == "" {
		job.Name = job.Argv[0]
	}
	if job.Dir == "" {
		job.Dir = "/tmp"
	}
	if job.Limit == 0 {
		job.Limit = defaultLimit
	}
	p := &Process{m: m, job: job, done: make(chan struct{})}
	m.mu.Lock()
	err := m.failed
	if err == nil {
		m.nextID++
		p.id = m.nextID
		m.running[p.id] = p
	}
	m.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("start job %s: %w", job.Name, err)
	}
	if err := m.order(&Order{ID: p.id, Job: &job}); err != nil {
		return nil, m.fail(fmt.Errorf("send job %s: %w", job.Name, err))
	}
	return p, nil
}

// Done returns a channel that is closed when Wait does not block.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns how the job ended. The error is about the machine, not the job: see errMachine.
func (p *Process) Wait() (*Result, error) {
	<-p.done
	if p.failure != nil {
		return nil, p.failure
	}
	return &p.result, nil
}

// Signal sends a signal to the job's process group. A job that has ended ignores it.
func (p *Process) Signal(s syscall.Signal) error {
	return p.m.order(&Order{ID: p.id, Signal: int(s)})
}

// Run runs a job to its end. See Wait.
func (m *Machine) Run(job Job) (*Result, error) {
	p, err := m.Start(job)
	if err != nil {
		return nil, err
	}
	return p.Wait()
}

// Put copies a program of the host into the machine. It brings no shared libraries: those of the programs
// in Config are there. Jobs that are started later find it; if it could not be written, the kernel's log says so.
func (m *Machine) Put(file, host string) error {
	content, err := os.ReadFile(host)
	if err != nil {
		return err
	}
	return m.order(&Order{File: file, Content: content})
}
