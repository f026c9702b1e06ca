// Command run boots the machine of test/rxe/vm and runs one program in it, for a look by hand:
//
//	go run ./test/rxe/run ibv_devinfo
//	go run ./test/rxe/run sh -c 'ibv_rc_pingpong -d rxe0 -g 1 & sleep 1; ibv_rc_pingpong -d rxe1 -g 1 10.77.0.1'
//
// Programs of the host are added with -with, files with -file IN-THE-MACHINE=OF-THE-HOST. The exit status is the
// program's, 125 where the machine failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/goucx/goucx/test/rxe/vm"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	c := vm.Config{Files: map[string]string{}}
	job := vm.Job{}
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Func("with", "add this `program` of the host", func(s string) error { c.Programs = append(c.Programs, s); return nil })
	f.Func("file", "add a file: `path=path` of the host", func(s string) error {
		in, host, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("%q has no =", s)
		}
		c.Files[in] = host
		return nil
	})
	f.IntVar(&c.MTU, "mtu", 0, "MTU of the links, by default 4500 `bytes`")
	f.StringVar(&c.Console, "console", "", "keep the kernel's log in this `file`")
	f.BoolVar(&job.Peer, "peer", false, "run in network namespace peer")
	f.DurationVar(&job.Limit, "limit", 5*time.Minute, "kill the program after this `time`")
	if err := f.Parse(args); err != nil {
		return 2
	}
	job.Argv = f.Args()
	status, err := inMachine(c, job, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "run:", err)
		return 125
	}
	return status
}

// inMachine runs a job in a machine of its own.
func inMachine(c vm.Config, job vm.Job, stdout, stderr io.Writer) (int, error) {
	ctx := context.Background()
	k, err := vm.Load(ctx, "")
	if err != nil {
		return 0, err
	}
	m, err := vm.Start(ctx, k, c)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	r, err := m.Run(job)
	if err != nil {
		return 0, err
	}
	fmt.Fprint(stdout, r.Stdout)
	fmt.Fprint(stderr, r.Stderr)
	if r.Failure != "" || r.Signal != "" {
		return 125, fmt.Errorf("%s: %s%s after %v", job.Argv[0], r.Failure, r.Signal, r.Took)
	}
	return r.Status, nil
}
