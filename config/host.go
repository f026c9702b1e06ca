package config

import (
	"os"
	"strings"
	"sync"
)

// Host describes the machine for the filtered sections of ucx.conf, with UCX's names.
type Host struct {
	CPUVendor string            // "Intel", "AMD", "Generic ARM", "Fujitsu ARM", ..., "unknown"
	CPUModel  string            // "Skylake", "Milan", "Grace", ..., "unknown"
	DMI       map[string]string // by file name in /sys/class/dmi/id: "product_name"
}

const (
	filterVendor = "CPU vendor"
	filterModel  = "CPU model"
	filterDMI    = "DMI "
)

// isFilter reports whether key is a filter and not a setting.
func isFilter(key string) bool {
	return strings.EqualFold(key, filterVendor) || strings.EqualFold(key, filterModel) || dmiField(key) != ""
}

// dmiField returns the sysfs file of a key such as "DMI product name", else "".
func dmiField(key string) string {
	if len(key) <= len(filterDMI) || !strings.EqualFold(key[:len(filterDMI)], filterDMI) {
		return ""
	}
	return strings.ReplaceAll(strings.ToLower(clean(key[len(filterDMI):])), " ", "_")
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

// LocalHost returns the description of this machine. All results share one map, which must not be
// modified.
func LocalHost() Host { return localHost() }

// localHost reads the description once, at its first call.
var localHost = sync.OnceValue(func() Host {
	text, _ := os.ReadFile("/proc/cpuinfo") // if unreadable or absent: unknown
	h := Host{DMI: readDMI("/sys/class/dmi/id")}
	h.CPUVendor, h.CPUModel = identifyCPU(string(text))
	return h
})

func readDMI(dir string) map[string]string {
	dmi := map[string]string{}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		// Serial numbers and the like are readable for root only and skipped.
		if text, err := os.ReadFile(dir + "/" + f.Name()); err == nil {
			dmi[f.Name()] = clean(string(text))
		}
	}
	return dmi
}
