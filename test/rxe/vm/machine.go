package vm

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config is what a machine is made of. The zero value of each field is its default.
type Config struct {
	// Programs are looked up in the host's PATH and stand in the machine's, beside those that each machine has.
	Programs []string
	// Files maps paths in the machine to files of the host. Shared libraries of programs are added.
	Files map[string]string
	// MTU is that of the Ethernet links, in bytes, 4500 by default: room for RoCE's path MTU of 4096.
	MTU int
	// Processors is how many the machine has, 2 by default.
	Processors int
	// MemoryMiB is the size of its memory, 2048 by default.
	MemoryMiB int
	// Console is the path of the file that gets the kernel's log. By default it is in the machine's
	// temporary directory, which Close removes.
	Console string
	// Silence is the longest that the machine may send no report, not even a heartbeat, 45 s by default. Then it hangs.
	// On a busy host an emulated machine may stand still for seconds.
	Silence time.Duration
}

// Machine is a running machine. Any goroutine may call its methods.
type Machine struct {
	// Boot says how the machine came up.
	Boot BootReport

	dir     string
	console string
	silence time.Duration
	qemu    *exec.Cmd
	exited  chan struct{} // closed when qemu has ended
	conn    net.Conn

	send   sync.Mutex // guards orders
	orders *gob.Encoder

	mu      sync.Mutex // guards the fields below
	nextID  int
	running map[int]*Process
	closing bool
	failed  error // not nil once the machine can no longer be used
}

// errMachine is wrapped by errors that say that the machine failed, not a job: it hung, its
// kernel panicked, or qemu ended. Such an error shows the last lines of the kernel's log.
var errMachine = errors.New("machine failed")

// errClosed is the reason of jobs that end because of Close.
var errClosed = errors.New("the machine is closed")

// Start boots a machine and returns when it accepts jobs. Canceling ctx kills the machine at any
// later time, too. The caller must call Close.
func Start(ctx context.Context, k *Kernel, c Config) (*Machine, error) {
	if c.MTU == 0 {
		c.MTU = 4500
	}
	if c.Processors == 0 {
		c.Processors = 2
	}
	if c.MemoryMiB == 0 {
		c.MemoryMiB = 2048
	}
	if c.Silence == 0 {
		c.Silence = 45 * time.Second
	}
	for attempt := 1; ; attempt++ {
		m, err := start(ctx, k, &c)
		if err == nil {
			m.Boot.Attempts = attempt
			return m, nil
		}
		if !errors.Is(err, errBootStands) || attempt == bootAttempts {
			return nil, err
		}
	}
}

// In some boots on a busy host the emulated machine stands still while the kernel sets up its
// devices. Such a boot is given up after bootSilence without a line in the log and tried again.
const (
	bootAttempts = 3
	bootSilence  = 30 * time.Second
)

var errBootStands = errors.New("its boot stands still")

// start makes one attempt.
func start(ctx context.Context, k *Kernel, c *Config) (*Machine, error) {
	qemu, err := find("qemu-system-x86_64")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "goucx-vm-")
	if err != nil {
		return nil, err
	}
	m := &Machine{dir: dir, console: c.Console, silence: c.Silence, exited: make(chan struct{}), running: map[int]*Process{}}
	if m.console == "" {
		m.console = filepath.Join(dir, "console")
	}
	if err := m.boot(ctx, qemu, k, c); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// boot builds the initramfs, starts qemu and waits for the first report.
func (m *Machine) boot(ctx context.Context, qemu string, k *Kernel, c *Config) error {
	guest := filepath.Join(m.dir, "init")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", guest, "github.com/goucx/goucx/test/rxe/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if _, err := output(build); err != nil {
		return err
	}
	files := map[string]string{"/init": guest}
	maps.Copy(files, c.Files)
	with := *c
	with.Files = files
	initramfs := filepath.Join(m.dir, "initramfs")
	if err := buildInitramfs(ctx, initramfs, k, &with); err != nil {
		return err
	}
	theirs, err := m.connect()
	if err != nil {
		return err
	}
	defer theirs.Close() // again, where qemu was not started

	// Not -M microvm, which hangs in half of the boots without KVM. The kernel's arguments save time, but
	// for the two that turn a fault of the kernel into the end of qemu.
	m.qemu = exec.CommandContext(ctx, qemu, "-accel", "tcg,thread=multi", "-M", "q35", "-cpu", "qemu64",
		"-smp", strconv.Itoa(c.Processors), "-m", strconv.Itoa(c.MemoryMiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-kernel", k.Image, "-initrd", initramfs,
		"-append", "console=ttyS0 loglevel=6 reboot=t panic=-1 oops=panic tsc=reliable no_timer_check mitigations=off "+
			"rcupdate.rcu_expedited=1 lsm=capability cryptomgr.notests 8250.nr_uarts=1",
		"-chardev", "file,id=console,path="+m.console, "-serial", "chardev:console",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=jobs,fd=3", "-device", "virtserialport,chardev=jobs,name=jobs")
	m.qemu.ExtraFiles = []*os.File{theirs}
	log, err := os.Create(filepath.Join(m.dir, "qemu"))
	if err != nil {
		return err
	}
	defer log.Close()
	m.qemu.Stdout, m.qemu.Stderr = log, log
	if err := m.qemu.Start(); err != nil {
		m.qemu = nil
		return err
	}
	theirs.Close() // so that the wait below ends when qemu does
	go func() {
		defer close(m.exited)
		_ = m.qemu.Wait() // its status says nothing that the reports do not
	}()

	booted := make(chan struct{})
	go m.watchBoot(booted)
	reports := gob.NewDecoder(m.conn)
	var first Report
	err = reports.Decode(&first)
	close(booted)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return m.fail(fmt.Errorf("%w for %v", errBootStands, bootSilence))
	}
	if err != nil {
		return m.fail(m.cause(err))
	}
	m.Boot = *first.Boot
	if m.Boot.Failure != "" {
		return m.fail(errors.New(m.Boot.Failure))
	}
	go m.receive(reports)
	return nil
}

// watchBoot ends the wait for the first report when the kernel's log has not grown for bootSilence.
func (m *Machine) watchBoot(booted <-chan struct{}) {
	var size int64
	grown := time.Now()
	for {
		select {
		case <-booted:
			return
		case <-time.After(time.Second):
		}
		if info, err := os.Stat(m.console); err == nil && info.Size() > size {
			size, grown = info.Size(), time.Now()
		}
		if time.Since(grown) > bootSilence {
			_ = m.conn.SetReadDeadline(time.Now()) // fails only where the connection is closed
			return
		}
	}
}

// connect makes the connection with the guest and returns the end that qemu gets.
func (m *Machine) connect() (*os.File, error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("socketpair for the machine: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "jobs")
	defer ours.Close()
	theirs := os.NewFile(uintptr(fds[1]), "jobs of qemu")
	m.conn, err = net.FileConn(ours)
	if err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	m.orders = gob.NewEncoder(m.conn)
	return theirs, nil
}

// receive handles the guest's reports until the machine ends.
func (m *Machine) receive(reports *gob.Decoder) {
	for {
		var r Report
		err := m.conn.SetReadDeadline(time.Now().Add(m.silence))
		if err == nil {
			err = reports.Decode(&r)
		}
		if err != nil {
			_ = m.fail(m.cause(err)) // the jobs have it
			return
		}
		m.mu.Lock()
		p := m.running[r.ID]
		if r.End != nil {
			delete(m.running, r.ID)
		}
		m.mu.Unlock()
		if p == nil {
			continue
		}
		p.out = append(p.out, r.Out...)
		p.err = append(p.err, r.Err...)
		if r.End != nil {
			p.result = *r.End
			p.result.Stdout, p.result.Stderr = string(p.out), string(p.err)
			close(p.done)
		}
	}
}

// cause says in terms of the machine why no report came.
func (m *Machine) cause(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("it hangs: no report within %v", m.silence)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return errors.New("it ended")
	default:
		return err
	}
}

// fail ends the machine because of err and all its jobs with it. It returns the error of the first call.
func (m *Machine) fail(err error) error {
	m.kill()
	tail, readErr := m.Console()
	if readErr != nil {
		tail = readErr.Error()
	}
	if log, _ := os.ReadFile(filepath.Join(m.dir, "qemu")); len(log) > 0 {
		tail += "\nqemu: " + strings.TrimSpace(string(log))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == nil {
		m.failed = fmt.Errorf("%w: %w; the kernel's last lines:\n%s", errMachine, err, lastWords(tail))
		if m.closing {
			m.failed = errClosed
		}
	}
	for id, p := range m.running {
		delete(m.running, id)
		p.failure = fmt.Errorf("job %s: %w", p.job.Name, m.failed)
		close(p.done)
	}
	return m.failed
}

// Console returns what the kernel has logged.
func (m *Machine) Console() (string, error) {
	b, err := os.ReadFile(m.console)
	return strings.ReplaceAll(string(b), "\r", ""), err
}

// lastWords returns the lines of the kernel's log that name a fault, and the last twenty.
func lastWords(log string) string {
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	rest := max(0, len(lines)-20)
	var words []string
	for _, l := range lines[:rest] {
		if strings.Contains(l, "Kernel panic") || strings.Contains(l, "BUG:") || strings.Contains(l, "Oops:") {
			words = append(words, l)
		}
	}
	return strings.Join(append(words, lines[rest:]...), "\n")
}

// kill ends qemu and waits for it.
func (m *Machine) kill() {
	if m.qemu != nil {
		_ = m.qemu.Process.Kill() // it may have ended
		<-m.exited
	}
}

// Close powers the machine off, ends its jobs and removes its files. Calls after the first do
// nothing.
func (m *Machine) Close() error {
	m.mu.Lock()
	closed, alive := m.closing, m.failed == nil
	m.closing = true
	m.mu.Unlock()
	if closed {
		return nil
	}
	if alive && m.conn != nil && m.qemu != nil {
		_ = m.order(&Order{PowerOff: true})
		select {
		case <-m.exited:
		case <-time.After(10 * time.Second):
		}
	}
	m.kill()
	var err error
	if m.conn != nil {
		err = m.conn.Close()
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}

// order sends a message to the guest.
func (m *Machine) order(o *Order) error {
	m.send.Lock()
	defer m.send.Unlock()
	if err := m.conn.SetWriteDeadline(time.Now().Add(m.silence)); err != nil {
		return err
	}
	return m.orders.Encode(o)
}
