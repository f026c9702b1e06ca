package vm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"strings"
)

// wantModules are the modules that the machine needs; what they depend on is added. rxe asks for crc32_generic
// by the name of its algorithm, when a device is made, so that no dependency shows it.
var wantModules = []string{"virtio_pci", "virtio_console", "veth", "bridge", "ib_uverbs", "crc32_generic", "rdma_rxe", "sch_netem"}

// loadOrder returns the wanted modules and those that they depend on, each after its own
// dependencies. It replaces compressed modules in the map with plain ones.
func loadOrder(modules map[string][]byte, want []string) ([]string, error) {
	var order []string
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		b, ok := modules[name]
		if !ok {
			return fmt.Errorf("it has no module %s", name)
		}
		b, err := decompress(b)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		modules[name] = b
		deps, err := depends(b)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, d := range deps {
			if err := add(d); err != nil {
				return err
			}
		}
		order = append(order, name)
		return nil
	}
	for _, name := range want {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// depends reads the names of the modules that a module needs from its section .modinfo, which
// is a list of key=value, each ended by a zero byte.
func depends(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok {
			return strings.FieldsFunc(strings.ReplaceAll(list, "-", "_"), func(r rune) bool { return r == ',' }), nil
		}
	}
	return nil, nil
}
