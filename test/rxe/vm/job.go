package vm

import "time"

// Job is a program to run in the machine.
type Job struct {
	// Name names the job in errors; by default the program's.
	Name string
	// Argv is the program, looked up in PATH, and its arguments.
	Argv []string
	// Env is added to the environment: NAME=value.
	Env []string
	// Dir is the working directory, by default /tmp.
	Dir string
	// Peer runs the job in network namespace "peer" in place of the root namespace.
	Peer bool
	// Limit is the longest that the job may run, by the machine's clock; then its process group is killed.
	// By default a minute.
	Limit time.Duration
}

// defaultLimit is Job.Limit where none is set.
const defaultLimit = time.Minute

// Result is how a job ended.
type Result struct {
	// Status is the exit status, -1 where a signal ended the program or it could not be started.
	Status int
	// Signal names the signal that ended the program.
	Signal string
	// TimedOut reports that Job.Limit was exceeded.
	TimedOut bool
	// Failure says why the program could not be started, otherwise "".
	Failure string
	// Took is how long the program ran by the machine's clock.
	Took time.Duration
	// Stdout and Stderr are all that the program and its children wrote. What they wrote earlier is
	// there also after a time-out.
	Stdout, Stderr string
}

// OK reports whether the program ended with status 0.
func (r *Result) OK() bool { return r.Status == 0 }

// Order is a message from the host to the guest, as gob. Job, Signal, File or PowerOff is set. The
// guest carries orders out one after the other; a job is started, not waited for.
type Order struct {
	// ID identifies a job; the host assigns it.
	ID int
	// Job is to be started.
	Job *Job
	// Signal is to be sent to the process group of job ID.
	Signal int
	// File is the path of a file to be written with Content, executable.
	File    string
	Content []byte
	// PowerOff ends the machine.
	PowerOff bool
}

// Report is a message from the guest to the host, as gob. An empty one says that the guest lives;
// one comes every Heartbeat.
type Report struct {
	// Boot is sent once, first, when jobs may be sent.
	Boot *BootReport
	// ID is that of the job that Out, Err and End are of.
	ID int
	// Out and Err are output of the job.
	Out, Err []byte
	// End says how the job ended, without its output. No report of this job follows.
	End *Result
}

// Heartbeat is how often the guest sends an empty report.
const Heartbeat = 2 * time.Second

// BootReport says how the machine came up.
type BootReport struct {
	// Failure says what failed, otherwise "".
	Failure string
	// Steps are the parts of the boot with the machine's time at their end.
	Steps []string
	// Release is the kernel's, as uname -r.
	Release string
	// Attempts is how many boots it took; 1 but for a busy host.
	Attempts int
}
