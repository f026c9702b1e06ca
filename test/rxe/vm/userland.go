package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// programs are those of the host that each machine has: what its init runs, and what most jobs need.
var programs = []string{"sh", "ip", "rdma", "cat", "sleep", "rm", "ls", "tcpdump", "ibv_devinfo"}

// Debian's packages of the programs whose packages are not named like them.
var packageOf = map[string]string{
	"qemu-system-x86_64": "qemu-system-x86", "dpkg-deb": "dpkg", "xz": "xz-utils", "sh": "dash", "ip": "iproute2", "rdma": "iproute2",
	"ibv_devinfo": "ibverbs-utils",
}

// find returns the path of a program of the host, with symbolic links resolved.
func find(name string) (string, error) {
	p, err := exec.LookPath(name)
	if err != nil {
		p, err = exec.LookPath(filepath.Join("/usr/sbin", name)) // not in the PATH of ordinary users
	}
	if err != nil {
		pkg := name
		switch p := packageOf[name]; {
		case p != "":
			pkg = p
		case strings.HasPrefix(name, "ibv_"):
			pkg = "ibverbs-utils"
		case strings.HasPrefix(name, "ib_"):
			pkg = "perftest"
		}
		return "", fmt.Errorf("%s is not installed: apt-get install %s", name, pkg)
	}
	return filepath.EvalSymlinks(p)
}

// buildInitramfs writes the initramfs: the first process, the kernel's modules, the programs with their
// shared libraries, and the files of the configuration.
func buildInitramfs(ctx context.Context, to string, k *Kernel, c *Config) error {
	files := map[string]string{}
	var missing []error
	for _, name := range slices.Concat(programs, c.Programs) {
		p, err := find(name)
		if err != nil {
			missing = append(missing, err)
		}
		files["/usr/bin/"+name] = p
	}
	// What libibverbs loads at run time.
	provider, err := filepath.Glob("/usr/lib/*/libibverbs/librxe-rdmav*.so")
	if err != nil || len(provider) == 0 {
		missing = append(missing, errors.New("libibverbs has no driver for rxe: apt-get install ibverbs-providers"))
	}
	if missing != nil {
		return errors.Join(missing...)
	}
	for _, p := range provider {
		files[p] = p
	}
	maps.Copy(files, c.Files)
	libs, err := libraries(ctx, slices.Sorted(maps.Values(files)))
	if err != nil {
		return err
	}
	for _, l := range libs {
		files[l] = l
	}

	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	a := newArchive(out)
	for _, d := range []string{"/dev", "/proc", "/sys", "/run", "/tmp", "/root", "/etc", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64"} {
		a.dir(d)
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib64"} {
		a.symlink("/"+l, "usr/"+l)
	}
	a.file("/etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\n"))
	a.file("/etc/group", 0o644, []byte("root:x:0:\n"))
	a.file("/etc/nsswitch.conf", 0o644, []byte("hosts: files\npasswd: files\ngroup: files\n"))
	a.file("/etc/hosts", 0o644, []byte("127.0.0.1 localhost\n::1 localhost\n"))
	a.file("/etc/libibverbs.d/rxe.driver", 0o644, []byte("driver rxe\n"))
	a.file("/settings", 0o644, fmt.Appendf(nil, "%d\n", c.MTU))
	var order []string
	for _, m := range k.Modules {
		order = append(order, filepath.Base(m))
		a.copyOf("/modules/"+filepath.Base(m), m)
	}
	a.file("/modules/order", 0o644, []byte(strings.Join(order, "\n")))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		a.copyOf(merged(name), files[name])
	}
	return a.close()
}

// merged returns a path below /usr in place of one that goes through the links /bin, /lib and their like.
func merged(p string) string {
	for _, l := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(p, l) {
			return "/usr" + p
		}
	}
	return p
}

var libraryPath = regexp.MustCompile(`(?m)^\s+(?:\S+ => )?(/\S+) \(0x`)

// libraries returns the shared libraries of programs, with the dynamic linker. Files that are not linked dynamically
// have none.
func libraries(ctx context.Context, files []string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "ldd", files...)
	out, err := cmd.Output()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok { // 1 where one of the files is static
		return nil, fmt.Errorf("shared libraries: %w", err)
	}
	if i := strings.Index(string(out), "not found"); i >= 0 {
		start := strings.LastIndexByte(string(out[:i]), '\n') + 1
		return nil, fmt.Errorf("shared libraries: %s", strings.TrimSpace(string(out[start:i+len("not found")])))
	}
	var libs []string
	for _, m := range libraryPath.FindAllStringSubmatch(string(out), -1) {
		libs = append(libs, m[1])
	}
	slices.Sort(libs)
	return slices.Compact(libs), nil
}
