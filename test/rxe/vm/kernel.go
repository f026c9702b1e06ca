package vm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// metaPackage is Debian's package that depends on the newest kernel.
const metaPackage = "linux-image-amd64"

// Kernel is a Debian kernel in the cache.
type Kernel struct {
	// Package is the name of the Debian package, with the version: linux-image-6.1.0-56-amd64.
	Package string
	// Image is the path of the kernel as an ELF file. qemu enters it directly, so that the machine
	// need not run the decompressor, which is slow under emulation.
	Image string
	// Modules are the paths of the modules, in the order in which they must be loaded.
	Modules []string
}

// Load returns the newest kernel in dir. Where there is none it downloads the one that metaPackage
// depends on, with apt-get: 70 MB, of which 60 MB are kept. An empty dir is goucx/rxe-2 in the
// user's cache directory. Remove it for a newer kernel. Needs no privileges. Concurrent calls are safe.
func Load(ctx context.Context, dir string) (*Kernel, error) {
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("cache for the kernel: %w", err)
		}
		dir = filepath.Join(cache, "goucx", "rxe-2")
	}
	name := newest(dir)
	if name == "" {
		var err error
		if name, err = kernelPackage(ctx); err != nil {
			return nil, err
		}
		if err = fetch(ctx, name, filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("kernel package %s: %w", name, err)
		}
	}
	k := &Kernel{Package: name, Image: filepath.Join(dir, name, "vmlinux")}
	order, err := os.ReadFile(filepath.Join(dir, name, "order"))
	if err != nil {
		return nil, fmt.Errorf("cached kernel: %w: remove %s", err, filepath.Join(dir, name))
	}
	for m := range strings.FieldsSeq(string(order)) {
		k.Modules = append(k.Modules, filepath.Join(dir, name, m))
	}
	return k, nil
}

// newest returns the kernel that was downloaded last into dir, "" if none is there.
func newest(dir string) (name string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "" // fetch makes it, or says why it cannot
	}
	var last time.Time
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), "linux-image-") && info.ModTime().After(last) {
			name, last = e.Name(), info.ModTime()
		}
	}
	return name
}

// kernelPackage returns the package that holds the kernel itself.
func kernelPackage(ctx context.Context) (string, error) {
	out, err := output(exec.CommandContext(ctx, "apt-cache", "depends", "--no-recommends", "--no-suggests", metaPackage))
	if err != nil {
		return "", fmt.Errorf("kernel package %s: %w: run apt-get update", metaPackage, err)
	}
	for line := range strings.Lines(out) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: ")
		if ok && strings.HasPrefix(name, "linux-image-") {
			return name, nil
		}
	}
	return "", fmt.Errorf("kernel package %s depends on no kernel: run apt-get update", metaPackage)
}

// fetch downloads a kernel package and creates dir with the kernel, the modules and their order.
// dir appears only when complete.
func fetch(ctx context.Context, name, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	get := exec.CommandContext(ctx, "apt-get", "download", "-qq", name)
	get.Dir = tmp
	if _, err = output(get); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download left %d packages", len(debs))
	}
	image, modules, err := unpack(ctx, debs[0])
	if err != nil {
		return err
	}
	elf, err := extractELF(image)
	if err != nil {
		return err
	}
	order, err := loadOrder(modules, wantModules)
	if err != nil {
		return err
	}
	files := map[string][]byte{"vmlinux": elf, "order": []byte(strings.Join(order, "\n") + "\n")}
	for _, m := range order {
		files[m] = modules[m]
	}
	done := filepath.Join(tmp, "done")
	if err := os.Mkdir(done, 0o755); err != nil {
		return err
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(done, name), b, 0o644); err != nil {
			return err
		}
	}
	err = os.Rename(done, dir)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster
	}
	return err
}

// unpack reads the kernel and all modules of a package into memory, some 300 MB. The modules are keyed by
// their name in the kernel, which has no dashes.
func unpack(ctx context.Context, deb string) (image []byte, modules map[string][]byte, err error) {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	modules = map[string][]byte{}
	for r := tar.NewReader(pipe); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
		base := path.Base(h.Name)
		stem, _, isModule := strings.Cut(base, ".ko")
		if !isModule && !strings.HasPrefix(base, "vmlinuz-") {
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return nil, nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
		if isModule {
			modules[strings.ReplaceAll(stem, "-", "_")] = b
		} else {
			image = b
		}
	}
	if err := cmd.Wait(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", cmd, err)
	}
	if image == nil {
		return nil, nil, fmt.Errorf("no boot/vmlinuz in %s", filepath.Base(deb))
	}
	return image, modules, nil
}

// extractELF returns the compressed kernel that a bzImage carries.
//
// Source: Linux, Documentation/arch/x86/boot.rst: setup_sects, payload_offset, payload_length.
func extractELF(image []byte) ([]byte, error) {
	const sector, setupSects, magic, payloadOffset, payloadLength = 512, 0x1f1, 0x202, 0x248, 0x24c
	le := binary.LittleEndian
	if len(image) < payloadLength+4 || string(image[magic:magic+4]) != "HdrS" {
		return nil, errors.New("the kernel is no bzImage")
	}
	start := (int(image[setupSects])+1)*sector + int(le.Uint32(image[payloadOffset:]))
	end := start + int(le.Uint32(image[payloadLength:])) - 4 // the last four bytes are the plain length
	if start > end || end > len(image) {
		return nil, errors.New("the bzImage is shorter than its header says")
	}
	return decompress(image[start:end])
}

// decompress recognizes the formats that Debian's kernels and modules use. What is not compressed
// is returned as it is.
func decompress(b []byte) ([]byte, error) {
	var tool string
	switch {
	case bytes.HasPrefix(b, []byte("\x7fELF")):
		return b, nil
	case bytes.HasPrefix(b, []byte("\x1f\x8b")):
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case bytes.HasPrefix(b, []byte("\xfd7zXZ")):
		tool = "xz"
	case bytes.HasPrefix(b, []byte("\x28\xb5\x2f\xfd")):
		tool = "zstd"
	default:
		return nil, fmt.Errorf("compressed in an unknown way: % x", b[:min(8, len(b))])
	}
	cmd := exec.Command(tool, "-dc")
	cmd.Stdin = bytes.NewReader(b)
	out, err := output(cmd)
	return []byte(out), err
}

// output runs a command to its end and returns what it wrote to stdout. The error holds what it wrote to stderr.
func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	return string(out), nil
}
