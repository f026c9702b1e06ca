package vm

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// archive writes the format that the kernel unpacks as its initramfs, cpio's "newc". All files belong to root.
//
// Source: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.
type archive struct {
	w    *bufio.Writer
	n    int // bytes written
	seen map[string]bool
	err  error // the first one; later calls do nothing
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<20), seen: map[string]bool{"/": true}}
}

// The kinds of files, as in struct stat.
const (
	modeDir     = 0o040000
	modeFile    = 0o100000
	modeSymlink = 0o120000
)

// dir adds a directory and those above it, unless they are there.
func (a *archive) dir(name string) {
	if a.seen[name] {
		return
	}
	a.dir(path.Dir(name))
	a.entry(name, modeDir|0o755, nil)
}

// file adds a file with its content.
func (a *archive) file(name string, mode fs.FileMode, content []byte) {
	a.dir(path.Dir(name))
	a.entry(name, modeFile|int(mode.Perm()), content)
}

// symlink adds a symbolic link.
func (a *archive) symlink(name, target string) {
	a.dir(path.Dir(name))
	a.entry(name, modeSymlink|0o777, []byte(target))
}

// copyOf adds a file of the host.
func (a *archive) copyOf(name, host string) {
	if a.seen[name] || a.err != nil {
		return
	}
	info, err := os.Stat(host)
	if err != nil {
		a.err = err
		return
	}
	b, err := os.ReadFile(host)
	if err != nil {
		a.err = err
		return
	}
	a.file(name, info.Mode(), b)
}

// entry writes one entry, the first of its name.
func (a *archive) entry(name string, mode int, content []byte) {
	if a.seen[name] || a.err != nil {
		return
	}
	a.seen[name] = true
	a.header(name[1:], mode, len(content))
	a.write(content)
	a.pad()
}

func (a *archive) header(name string, mode, size int) {
	inode := len(a.seen)
	fields := []int{inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name) + 1, 0}
	b := []byte("070701")
	for _, f := range fields {
		b = fmt.Appendf(b, "%08x", f)
	}
	b = append(b, name...)
	a.write(append(b, 0))
	a.pad()
}

func (a *archive) write(b []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(b)
		a.n += len(b)
	}
}

// pad fills up to a multiple of four bytes.
func (a *archive) pad() { a.write(make([]byte, -a.n&3)) }

// close ends the archive and returns the first error.
func (a *archive) close() error {
	a.header("TRAILER!!!", 0, 0)
	if a.err != nil {
		return fmt.Errorf("initramfs: %w", a.err)
	}
	return a.w.Flush()
}
