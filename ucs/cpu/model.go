package cpu

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// Model is the processor model from /proc/cpuinfo. A field is empty if it is not there.
type Model struct {
	Vendor string // "GenuineIntel", "AuthenticAMD"; on arm64 the implementer's number, such as "0x41"
	Name   string // "Intel(R) Xeon(R) Processor"; on arm64 the part number, such as "0xd4f"
}

// String returns the name. It adds the vendor in front if the name is missing or a number.
func (m Model) String() string {
	if m.Name == "" || strings.HasPrefix(m.Name, "0x") {
		return strings.TrimSpace(m.Vendor + " " + m.Name)
	}
	return m.Name
}

// SystemModel returns the model of this machine, read once. It is empty if it cannot be read.
func SystemModel() Model { return systemModel() }

var systemModel = sync.OnceValue(func() Model {
	m, err := ReadModel(os.DirFS("/"))
	if err != nil {
		return Model{}
	}
	return m
})

// ReadModel reads proc/cpuinfo from a file system. It returns the model of the first
// processor there.
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
			setIfEmpty(&m.Vendor, value)
		case "model name", "CPU part":
			setIfEmpty(&m.Name, value)
		}
	}
	return m, nil
}

func setIfEmpty(field *string, value string) {
	if *field == "" {
		*field = value
	}
}
