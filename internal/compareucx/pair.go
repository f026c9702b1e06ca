package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Time limits beside that of a run.
const (
	startLimit = 10 * time.Second // for a server to listen
	endLimit   = time.Second      // for a server to end after its client
	pollEvery  = 10 * time.Millisecond
)

// tool is one of the two programs.
type tool struct {
	binary      string
	environment []string
}

// compare runs a line through both tools.
func (s settings) compare(ctx context.Context, l line) (result, error) {
	dir, err := os.MkdirTemp("", "compare-ucx")
	if err != nil {
		return result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var files []string
	for i, text := range l.files {
		path := filepath.Join(dir, fmt.Sprintf("file%d", i+1))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return result{}, err
		}
		files = append(files, "-b", path)
	}
	ucx, err := s.outcome(ctx, tool{s.ucx, []string{"UCX_TLS=sm,self,tcp", "UCX_NET_DEVICES=lo"}}, l, files)
	if err != nil {
		return result{}, err
	}
	ours, err := s.outcome(ctx, tool{s.ours, []string{"UCX_TLS=sm,self"}}, l, files)
	return compared(l, ucx, ours), err
}

// outcome runs a line through one tool.
func (s settings) outcome(ctx context.Context, t tool, l line, files []string) (outcome, error) {
	if l.alone {
		c := t.start(ctx, slices.Concat(l.args, files))
		o := outcome{status: c.end(s.limit), errors: c.errorLines()}
		o.columns, o.rows = splitOutput(commonOutput(c.out.String()), slices.Contains(l.args, "-v"))
		return o, ctx.Err()
	}
	port, err := freePort()
	if err != nil {
		return outcome{}, err
	}
	place := []string{"-p", fmt.Sprint(port)}
	server := t.start(ctx, slices.Concat(place, l.server, files))
	if err := server.listens(port); err != nil {
		server.kill()
		return outcome{}, err
	}
	client := t.start(ctx, slices.Concat([]string{"localhost"}, place, l.args, files))
	o := outcome{status: client.end(s.limit), errors: client.errorLines()}
	if o.server = server.end(endLimit); o.server == statusEndless {
		o.server = statusWaits
	}
	o.columns, o.rows = splitOutput(commonOutput(client.out.String()), slices.Contains(l.args, "-v"))
	o.box = serverBox(commonOutput(server.out.String()))
	return o, ctx.Err()
}

// process is a running tool.
type process struct {
	cmd              *exec.Cmd
	out, diagnostics bytes.Buffer
	done             chan struct{} // closed after its exit; err is set then
	err              error
}

// start starts the tool without the environment's own UCX_ variables.
func (t tool) start(ctx context.Context, args []string) *process {
	p := &process{cmd: exec.CommandContext(ctx, t.binary, args...), done: make(chan struct{})}
	p.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "UCX_") }), t.environment...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.diagnostics
	if p.err = p.cmd.Start(); p.err != nil {
		close(p.done)
		return p
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p
}

// listens returns when the server listens on the port, or has ended. It reads the kernel's table,
// because the server would take a connection for its client.
func (p *process) listens(port int) error {
	limit := time.After(startLimit)
	for {
		for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			text, err := os.ReadFile(name)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			for l := range strings.Lines(string(text)) {
				f := strings.Fields(l)
				if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "0A" {
					return nil
				}
			}
		}
		select {
		case <-p.done:
			return nil
		case <-limit:
			return fmt.Errorf("%s: does not listen after %v", strings.Join(p.cmd.Args, " "), startLimit)
		case <-time.After(pollEvery):
		}
	}
}

// end waits for the exit, with a limit, and returns the status.
func (p *process) end(limit time.Duration) string {
	select {
	case <-p.done:
	case <-time.After(limit):
		p.kill()
		return statusEndless
	}
	if p.err != nil {
		return statusFails
	}
	return statusGood
}

// kill kills this process and waits for it.
func (p *process) kill() {
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Kill() // it may have exited already
	}
	<-p.done
}

// errorLines returns the lines on stderr but for notes and warnings of goucx's tool.
func (p *process) errorLines() []string {
	return slices.DeleteFunc(strings.Split(p.diagnostics.String(), "\n"), func(l string) bool {
		return l == "" || strings.HasPrefix(l, "ucx_perftest: note: ") || strings.HasPrefix(l, "ucx_perftest: warning: ")
	})
}

// freePort returns a port that is currently unused.
func freePort() (int, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
