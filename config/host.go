package config

import (
	"os"
	"strings"
	"sync"
)

// Host is the machine as the filtered sections of ucx.conf see it, in UCX's
// own names.
type Host struct {
	CPUVendor string            // "Intel", "AMD", "Generic ARM", "Fujitsu ARM", ..., "unknown"
	CPUModel  string            // "Skylake", "Milan", "Grace", ..., "unknown"
	DMI       map[string]string // by file of /sys/class/dmi/id: "product_name"
}

const (
	filterVendor = "CPU vendor"
	filterModel  = "CPU model"
	filterDMI    = "DMI "
)

// isFilter tells a filter key from a setting.
func isFilter(key string) bool {
	return strings.EqualFold(key, filterVendor) || strings.EqualFold(key, filterModel) || dmiField(key) != ""
}

// dmiField is the sysfs file behind "DMI product name", else "".
func dmiField(key string) string {
	if len(key) <= len(filterDMI) || !strings.EqualFold(key[:len(filterDMI)], filterDMI) {
		return ""
	}
	return strings.ReplaceAll(strings.ToLower(clean(key[len(filterDMI):])), " ", "_")
}

// applies reports whether every filter of the section, wherever it stands in
// it, matches the host. Patterns are globs without regard to case.
func (sec confSection) applies(host func() Host) bool {
	for _, l := range sec.lines {
		if isFilter(l.key) && !glob(strings.ToLower(l.value), strings.ToLower(host().field(l.key))) {
			return false
		}
	}
	return true
}

func (h Host) field(key string) string {
	switch {
	case strings.EqualFold(key, filterVendor):
		return h.CPUVendor
	case strings.EqualFold(key, filterModel):
		return h.CPUModel
	}
	if v, ok := h.DMI[dmiField(key)]; ok {
		return v
	}
	return unknownCPU
}

// LocalHost is this machine, for those who write such sections. The maps of all
// answers are one: it is only read.
func LocalHost() Host { return localHost() }

// localHost reads this machine once, when first asked.
var localHost = sync.OnceValue(func() Host {
	text, _ := os.ReadFile("/proc/cpuinfo") // unreadable or absent: unknown
	h := Host{DMI: readDMI("/sys/class/dmi/id")}
	h.CPUVendor, h.CPUModel = identifyCPU(string(text))
	return h
})

func readDMI(dir string) map[string]string {
	dmi := map[string]string{}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		// Serial numbers and the like are for root only and skipped.
		if text, err := os.ReadFile(dir + "/" + f.Name()); err == nil {
			dmi[f.Name()] = clean(string(text))
		}
	}
	return dmi
}
