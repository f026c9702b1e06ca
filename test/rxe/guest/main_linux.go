// Command guest is the first process of the machine of test/rxe/vm. It loads the kernel's modules, sets
// the network up and runs the jobs that the host sends through the virtio-serial port "jobs".
// The messages are those of package vm (job.go). What it writes to stderr is in the kernel's log.
package main

import (
	"encoding/gob"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/test/rxe/vm"
)

func main() {
	var report vm.BootReport
	port, err := setUp(&report)
	if port == nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		powerOff()
	}
	if err != nil {
		report.Failure = err.Error()
	}
	a := &agent{reports: gob.NewEncoder(port), jobs: map[int]*exec.Cmd{}}
	a.report(&vm.Report{Boot: &report})
	go a.beat()
	a.serve(gob.NewDecoder(port))
	powerOff()
}

// setUp brings the system up and returns the port to the host, also with an error where it got that far.
func setUp(report *vm.BootReport) (port *os.File, err error) {
	if err := mountAll(); err != nil {
		return nil, err
	}
	done := func(step string) {
		up, _ := os.ReadFile("/proc/uptime") // without it the step has no time
		report.Steps = append(report.Steps, strings.Fields(string(up) + " ?")[0]+" s: "+step)
		fmt.Fprintln(os.Stderr, "guest:", step)
	}
	done("init started")
	if err := loadModules(); err != nil {
		return nil, err
	}
	done("modules loaded")
	port, err = openPort("jobs")
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"PATH": "/usr/bin:/usr/sbin", "HOME": "/root", "TMPDIR": "/tmp"} {
		if err := os.Setenv(name, value); err != nil {
			return port, err
		}
	}
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &all); err != nil {
		return port, fmt.Errorf("setrlimit memlock: %w", err)
	}
	if err := setUpNetwork(); err != nil {
		return port, err
	}
	done("network and verbs devices up")
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return port, fmt.Errorf("uname: %w", err)
	}
	report.Release = unix.ByteSliceToString(u.Release[:])
	return port, nil
}

// mountAll mounts the kernel's file systems.
func mountAll() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"devpts", "/dev/pts"}, {"tmpfs", "/dev/shm"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}

// loadModules loads the modules in the order that package vm has worked out.
func loadModules() error {
	order, err := os.ReadFile("/modules/order")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(order)) {
		f, err := os.Open(filepath.Join("/modules", name))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil {
			return fmt.Errorf("load module %s: %w", name, err)
		}
	}
	return nil
}

// openPort opens a virtio-serial port by its name.
func openPort(name string) (*os.File, error) {
	ports, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, p := range ports {
		b, err := os.ReadFile(p)
		if err == nil && strings.TrimSpace(string(b)) == name {
			return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(p)), os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("no virtio-serial port %q", name)
}

// powerOff ends the machine: qemu runs with -no-reboot. It does not return.
func powerOff() {
	_ = unix.IoctlSetInt(int(os.Stderr.Fd()), unix.TCSBRK, 1) // wait until the serial line has sent what was written last
	unix.Sync()
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	fmt.Fprintln(os.Stderr, "guest: reboot:", err)
	os.Exit(1) // the kernel panics, which ends qemu too
}
