package config

import (
	"slices"
	"strconv"
	"strings"
)

const unknownCPU = "unknown"

// identifyCPU returns UCX's names of vendor and model for the text of /proc/cpuinfo.
func identifyCPU(cpuinfo string) (vendor, model string) {
	f := cpuFields(cpuinfo)
	switch {
	case f["vendor_id"] != "":
		return identifyX86(f)
	case f["CPU implementer"] != "":
		return identifyARM(f)
	case strings.Contains(f["cpu"], "POWER"):
		return "Generic PPC", unknownCPU
	case strings.HasPrefix(f["isa"], "rv64"):
		return "Generic RV64G", "RV64G"
	}
	return unknownCPU, unknownCPU
}

// cpuFields returns the fields of the first CPU.
func cpuFields(cpuinfo string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(cpuinfo) {
		k, v, ok := strings.Cut(line, ":")
		if k = clean(k); ok && fields[k] == "" {
			fields[k] = clean(v)
		}
	}
	return fields
}

// x86Models is UCX's table of families and models.
var x86Models = []struct {
	vendor string
	family int
	models []int
	name   string
}{
	{"Intel", 6, []int{0x3a, 0x3e}, "IvyBridge"},
	{"Intel", 6, []int{0x2a, 0x2d}, "SandyBridge"},
	{"Intel", 6, []int{0x1a, 0x1e, 0x1f, 0x2e}, "Nehalem"},
	{"Intel", 6, []int{0x25, 0x2c, 0x2f}, "Westmere"},
	{"Intel", 6, []int{0x3c, 0x3f, 0x45, 0x46}, "Haswell"},
	{"Intel", 6, []int{0x3d, 0x47, 0x4f, 0x56}, "Broadwell"},
	{"Intel", 6, []int{0x5e, 0x4e, 0x55}, "Skylake"},
	{"Intel", 6, []int{0x6a, 0x6c, 0x7e}, "Icelake"},
	{"AMD", 0x17, []int{0x01, 0x29}, "Naples"},
	{"AMD", 0x17, []int{0x31}, "Rome"},
	{"AMD", 0x19, []int{0x00, 0x01}, "Milan"},
	{"AMD", 0x19, []int{0x11, 0x90}, "Genoa"},
	{"Zhaoxin", 6, []int{0x0f}, "Zhangjiang"},
	{"Zhaoxin", 7, []int{0x1b}, "Wudaokou"},
	{"Zhaoxin", 7, []int{0x3b}, "Lujiazui"},
}

var x86Vendors = map[string]string{
	"GenuineIntel": "Intel",
	"AuthenticAMD": "AMD",
	"CentaurHauls": "Zhaoxin",
	"Shanghai":     "Zhaoxin",
}

func identifyX86(f map[string]string) (vendor, model string) {
	vendor, ok := x86Vendors[f["vendor_id"]]
	if !ok {
		return unknownCPU, unknownCPU
	}
	family, errF := strconv.Atoi(f["cpu family"])
	number, errM := strconv.Atoi(f["model"])
	if errF != nil || errM != nil {
		return vendor, unknownCPU
	}
	for _, m := range x86Models {
		if m.vendor == vendor && m.family == family && slices.Contains(m.models, number) {
			return vendor, m.name
		}
	}
	if vendor == "AMD" && family == 0x1a {
		return vendor, "Turin"
	}
	return vendor, unknownCPU
}

// identifyARM distinguishes Fujitsu's and NVIDIA's CPUs from others, as UCX does.
func identifyARM(f map[string]string) (vendor, model string) {
	switch {
	case f["CPU implementer"] == "0x46":
		return "Fujitsu ARM", "ARM 64-bit"
	case f["CPU implementer"] == "0x41" && f["CPU part"] == "0xd4f":
		return "Nvidia", "Grace"
	}
	return "Generic ARM", "ARM 64-bit"
}
