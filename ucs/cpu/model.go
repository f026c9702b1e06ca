package cpu

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// Model names the processor in the words of /proc/cpuinfo; fields that it does
// not have are empty.
type Model struct {
	Vendor string // "GenuineIntel", "AuthenticAMD"; on arm64 the implementer's number "0x41"
	Name   string // "Intel(R) Xeon(R) Processor"; on arm64 the part's number "0xd4f"
}

// String is the name, after the vendor where the name does not say it.
func (m Model) String() string {
	if m.Name == "" || strings.HasPrefix(m.Name, "0x") {
		return strings.TrimSpace(m.Vendor + " " + m.Name)
	}
	return m.Name
}

// SystemModel is this machine's, read once; empty where it cannot be read.
func SystemModel() Model { return systemModel() }

var systemModel = sync.OnceValue(func() Model {
	m, err := ReadModel(os.DirFS("/"))
	if err != nil {
		return Model{}
	}
	return m
})

// ReadModel reads proc/cpuinfo of a file system; its first processor speaks for
// all.
func ReadModel(root fs.FS) (Model, error) {
	text, err := fs.ReadFile(root, "proc/cpuinfo")
	if err != nil {
		return Model{}, fmt.Errorf("processor model: %w", err)
	}
	var m Model
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "vendor_id", "CPU implementer":
			keepFirst(&m.Vendor, value)
		case "model name", "CPU part":
			keepFirst(&m.Name, value)
		}
	}
	return m, nil
}

func keepFirst(field *string, value string) {
	if *field == "" {
		*field = value
	}
}
