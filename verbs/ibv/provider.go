//go:build linux && cgo && ibverbs

package ibv

// #cgo LDFLAGS: -libverbs
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Built returns why the program cannot use RDMA devices. It returns nil: the program was built
// with the tag.
func Built() error { return nil }

// Provider opens RDMA devices.
type Provider struct{ conf Config }

// New returns a provider. Errors in c are reported by Devices and Open.
func New(c Config) *Provider { return &Provider{conf: c} }

// Name returns "ibv".
func (p *Provider) Name() string { return ProviderName }

// Where the kernel shows RDMA devices. Variables, for the tests.
var (
	classDir = "/sys/class/infiniband"
	nodeDir  = "/dev/infiniband"
)

// Devices lists the RDMA devices of the host. If there is none, or one of them cannot be used, it
// returns why.
//
// Errors: ErrNoDevice, ErrPermission.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) {
	if err := p.conf.Validate(); err != nil {
		return nil, err
	}
	var infos []verbs.DeviceInfo
	err := eachDevice(func(_ *C.struct_ibv_device, name string) bool {
		infos = append(infos, verbs.DeviceInfo{Provider: ProviderName, Name: name, Net: netInterface(name), Link: linkName})
		return false
	})
	if err == nil && len(infos) == 0 {
		err = whyNone()
	}
	return infos, err
}

// linkName is DeviceInfo.Link.
const linkName = "roce"

// eachDevice calls f for every device that libibverbs finds, until f returns true.
func eachDevice(f func(d *C.struct_ibv_device, name string) bool) error {
	var n C.int
	list, err := C.goucx_device_list(&n)
	if list == nil {
		if err == nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOSYS) { // the kernel has no RDMA
			return whyNone()
		}
		return fmt.Errorf("list RDMA devices: %w", fault(err))
	}
	defer C.ibv_free_device_list(list)
	for i := range n {
		d := C.goucx_device_at(list, i)
		if f(d, C.GoString(C.ibv_get_device_name(d))) {
			break
		}
	}
	return nil
}

// whyNone returns the reason why libibverbs finds no device.
func whyNone() error {
	entries, _ := os.ReadDir(classDir)
	if len(entries) == 0 {
		if _, err := os.Stat(nodeDir); err != nil {
			return fmt.Errorf("%w: neither %s nor %s: load the driver of the card and the module ib_uverbs; in a container, pass --device %s",
				ErrNoDevice, classDir, nodeDir, nodeDir)
		}
		return fmt.Errorf("%w: the kernel has none in %s: load the driver of the card, or add one with rdma link add", ErrNoDevice, classDir)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	all := strings.Join(names, ", ")
	nodes, err := filepath.Glob(filepath.Join(nodeDir, "uverbs*"))
	if err != nil || len(nodes) == 0 {
		return fmt.Errorf("%w: the kernel has %s, but there is no %s/uverbs0: load the module ib_uverbs; in a container, pass --device %s",
			ErrNoDevice, all, nodeDir, nodeDir)
	}
	return fmt.Errorf("%w: the kernel has %s, but libibverbs has no driver for it: install ibverbs-providers (rdma-core)", ErrNoDevice, all)
}

// netInterface returns the network interface of a device's first port, or "".
func netInterface(name string) string {
	b, err := os.ReadFile(filepath.Join(classDir, name, "ports/1/gid_attrs/ndevs/0"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Open opens a device of the list.
//
// Errors: ErrPermission, ErrDeviceGone, ucs.ErrInvalid for a device that is not there.
func (p *Provider) Open(info verbs.DeviceInfo) (verbs.Context, error) {
	fail := func(err error) (verbs.Context, error) {
		return nil, fmt.Errorf("open RDMA device %q: %w", info.Name, err)
	}
	if err := p.conf.Validate(); err != nil {
		return fail(err)
	}
	var c *C.struct_ibv_context
	found := false
	var why error
	err := eachDevice(func(d *C.struct_ibv_device, name string) bool {
		if name != info.Name {
			return false
		}
		found = true
		if c, why = C.ibv_open_device(d); c == nil {
			why = openFault(name, why)
		}
		return true
	})
	switch {
	case err != nil:
		return fail(err)
	case !found:
		return fail(fmt.Errorf("no such device: %w", ucs.ErrInvalid))
	case c == nil:
		return fail(why)
	}
	d, err := open(c, info, p.conf)
	if err != nil {
		return fail(err)
	}
	return d, nil
}

// openFault explains why a device cannot be opened.
func openFault(name string, err error) error {
	node := nodeOf(name)
	if errors.Is(err, os.ErrNotExist) { // libibverbs looks in /dev/char too, and returns what it has found there
		if f, e := os.OpenFile(node, os.O_RDWR, 0); e != nil {
			err = e
		} else {
			_ = f.Close() // nothing was written
		}
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: open %s for reading and writing: add the user to the group of the file (often rdma), or change its mode", ErrPermission, node)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: %s is missing: load the module ib_uverbs; in a container, pass --device %s", ErrNoDevice, node, nodeDir)
	}
	return fault(err)
}

// nodeOf returns the device file of a device.
func nodeOf(name string) string {
	found, err := filepath.Glob(filepath.Join(classDir, name, "device/infiniband_verbs/uverbs*"))
	if err != nil || len(found) == 0 { // virtual devices have no parent
		found, _ = filepath.Glob(filepath.Join(filepath.Dir(classDir), "infiniband_verbs/uverbs*"))
		found = filterDevice(found, name)
	}
	if len(found) == 0 {
		return filepath.Join(nodeDir, "uverbs*")
	}
	return filepath.Join(nodeDir, filepath.Base(found[0]))
}

// filterDevice keeps the folders of /sys/class/infiniband_verbs that belong to a device.
func filterDevice(dirs []string, name string) (own []string) {
	for _, d := range dirs {
		if b, err := os.ReadFile(filepath.Join(d, "ibdev")); err == nil && strings.TrimSpace(string(b)) == name {
			own = append(own, d)
		}
	}
	return own
}
