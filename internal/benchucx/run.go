package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// tool is one of the two compared programs, as a row runs it.
type tool struct {
	name, binary string
	env          []string // settings
	form         form
}

// goucx returns goucx's tool under a row's variant.
func (p plan) goucx(r row, v variant) tool {
	env := environments[r.over].goucx
	if v.env != "" {
		env = append(slices.Clone(env), v.env)
	}
	return tool{name: "goucx", binary: p.ours, env: env, form: r.form}
}

// cucx returns UCX's tool under a row, or what takes its place.
func (p plan) cucx(r row) tool {
	if r.ownBase {
		return p.goucx(r, variant{})
	}
	return tool{name: "UCX", binary: p.ucx, env: environments[r.over].ucx, form: r.ucxForm}
}

// environment returns this process's environment without UCX_ variables, plus the tool's settings.
func (t tool) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "UCX_") })
	return append(env, t.env...)
}

const (
	startLimit = 10 * time.Second // for a server, until it listens
	endLimit   = 5 * time.Second  // for a server, after its client
	pollEvery  = 5 * time.Millisecond
	runLimit   = 30 * time.Second // for a client, beyond the planned time of its measurement
)

// measure runs t with the options of a client and returns the result.
func (p plan) measure(ctx context.Context, t tool, args []string) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, p.length+runLimit)
	defer cancel()
	if t.form == twoProcesses {
		return p.measureTwo(ctx, t, args)
	}
	out, err := t.client(ctx, append(p.placeArgs(t.form), args...))
	if err != nil {
		return figures{}, err
	}
	return parseFigures(out)
}

// measureTwo also runs a server.
func (p plan) measureTwo(ctx context.Context, t tool, args []string) (figures, error) {
	port, err := freePort()
	if err != nil {
		return figures{}, err
	}
	s, err := t.serve(ctx, p.server, port)
	if err != nil {
		return figures{}, err
	}
	out, err := t.client(ctx, slices.Concat(corePortArgs(p.client, port), []string{host}, args))
	if err != nil {
		s.kill()
		return figures{}, fmt.Errorf("%w; the output of the server: %s", err, s.output())
	}
	if err := s.end(); err != nil {
		return figures{}, err
	}
	return parseFigures(out)
}

// client runs the measuring side to its end and returns its output.
func (t tool) client(ctx context.Context, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, t.binary, append([]string{"-f", "-v"}, args...)...)
	cmd.Env = t.environment()
	var out, diagnostics bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, lastLines(diagnostics.String()+out.String()))
	}
	return out.String(), nil
}

// host is the server's host name.
const host = "localhost"

// corePortArgs returns the options for core and port of one of two processes.
func corePortArgs(core, port int) []string {
	return []string{"-c", fmt.Sprint(core), "-p", fmt.Sprint(port)}
}

// placeArgs returns the options for the cores of a single process.
func (p plan) placeArgs(f form) []string {
	if f == oneThread {
		return []string{"-c", fmt.Sprint(p.client), "-l"}
	}
	return []string{"-c", fmt.Sprintf("%d,%d", p.client, p.server), "-l", "-T", "2"}
}

// server is a running server process.
type server struct {
	cmd  *exec.Cmd
	out  *bytes.Buffer
	done chan struct{} // closed after its exit; err is set then
	err  error
}

// serve starts a server and returns when it listens.
func (t tool) serve(ctx context.Context, core, port int) (*server, error) {
	s := &server{cmd: exec.CommandContext(ctx, t.binary, corePortArgs(core, port)...), out: new(bytes.Buffer), done: make(chan struct{})}
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = t.environment(), s.out, s.out
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.done)
	}()
	limit := time.After(startLimit)
	for {
		ok, err := listening(port)
		switch {
		case err != nil:
			s.kill()
			return nil, err
		case ok:
			return s, nil
		}
		select {
		case <-s.done:
			return nil, fmt.Errorf("%s: ended before its client came: %w: %s", strings.Join(s.cmd.Args, " "), errors.Join(s.err, ctx.Err()), s.output())
		case <-limit:
			s.kill()
			return nil, fmt.Errorf("%s: does not listen after %v: %s", strings.Join(s.cmd.Args, " "), startLimit, s.output())
		case <-time.After(pollEvery):
		}
	}
}

// end waits for the server to exit after its client has exited.
func (s *server) end() error {
	select {
	case <-s.done:
	case <-time.After(endLimit):
		s.kill()
		return fmt.Errorf("%s: still there %v after its client", strings.Join(s.cmd.Args, " "), endLimit)
	}
	if s.err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(s.cmd.Args, " "), s.err, s.output())
	}
	return nil
}

// kill kills this process and waits for it.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // it may have exited already
	<-s.done
}

// output returns the end of the server's output; it is valid after the server's exit.
func (s *server) output() string {
	select {
	case <-s.done:
		return lastLines(s.out.String())
	default:
		return ""
	}
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], " | ")
}

// freePort returns a port that is currently unused.
func freePort() (int, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// listening reports whether a socket listens on the port. It reads the kernel's tables, because
// the server would take a connection for its client.
func listening(port int) (bool, error) {
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(name)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return false, err
		case listens(string(text), port):
			return true, nil
		}
	}
	return false, nil
}

// listens reports whether the text of a kernel table has a socket in state LISTEN on the port.
func listens(table string, port int) bool {
	const localAddress, state, stateListen = 1, 3, "0A"
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > state && strings.HasSuffix(f[localAddress], suffix) && f[state] == stateListen {
			return true
		}
	}
	return false
}
