package config

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseConf(t *testing.T) {
	cases := []struct {
		name, text string
		want       []confSection
		bad        []int
	}{
		{"empty", "", []confSection{{}}, nil},
		{"comments", "# a\n;b\n\n  # c=d\n", []confSection{{}}, nil},
		{"values", "A=1\n b : 2 \nC=a=b:c\nD=\n", []confSection{{lines: []confLine{
			{"A", "1", 1}, {"b", "2", 2}, {"C", "a=b:c", 3}, {"D", "", 4},
		}}}, nil},
		{"inline comments", "A=1 ; x\nB=1;2\nC= ;x\nD=1 # x\nE=;x\n", []confSection{{lines: []confLine{
			{"A", "1", 1}, {"B", "1;2", 2}, {"C", "", 3}, {"D", "1 # x", 4}, {"E", ";x", 5},
		}}}, nil},
		{"windows and BOM", "\xef\xbb\xbfA=1\r\n[s]\r\nB=2", []confSection{
			{lines: []confLine{{"A", "1", 1}}}, {name: "s", line: 2, lines: []confLine{{"B", "2", 3}}},
		}, nil},
		{"sections", "[a b] ; c\nX=1\n[]\n[a b]\n", []confSection{
			{}, {name: "a b", line: 1, lines: []confLine{{"X", "1", 2}}}, {line: 3}, {name: "a b", line: 4},
		}, nil},
		{"deprecated", "UCX_SELF_MAX_SHORT (deprecated)\nUCX_X (deprecated)=1\n(deprecated)\nUCX X (deprecated)\n", []confSection{{lines: []confLine{
			{"UCX_X (deprecated)", "1", 2},
		}}}, []int{3, 4}},
		{"malformed", "A\n=1\n[s\nB=1\n", []confSection{{}, {name: "s", line: 3, lines: []confLine{{"B", "1", 4}}}}, []int{1, 2, 3}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			sections, bad := parseConf([]byte(c.text))
			assert.Equal(t, c.want, sections)
			assert.Equal(t, c.bad, bad)
		})
	}
}

func TestConfFile(t *testing.T) {
	const file = "testdata/ucx.conf"
	amd := Host{CPUVendor: "AMD", CPUModel: "Milan", DMI: map[string]string{"product_name": "Box 7"}}
	cases := []struct {
		name         string
		host         Host
		tls          string
		seg          Bytes
		cells, queue int
		origin       string // of SEG_SIZE
	}{
		{"an AMD Milan box", amd, "shm,self", 32 << 10, 64, 99, file + ":8"},
		{"an AMD Rome", Host{CPUVendor: "AMD", CPUModel: "Rome"}, "nothing", 32 << 10, 32, 256, file + ":8"},
		{"an unknown one", Host{CPUVendor: "unknown", CPUModel: "unknown"}, "shm,self", 16 << 10, 32, 256, file + ":3"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, _, err := Load(closed(Options{Dirs: []string{"testdata"}, Host: &c.host}), testTable)
			require.NoError(t, err)
			assert.Equal(t, c.tls, testTLS.Get(s).String())
			assert.Equal(t, c.seg, testSeg.Get(s))
			assert.Equal(t, c.cells, testCells.Get(s))
			assert.Equal(t, c.queue, testQueue.Get(s))
			assert.Equal(t, c.origin, s.Origin("SEG_SIZE").Where)
			assert.Equal(t, "info", LogLevel.Get(s))
		})
	}
}

// The filter stands below the bad value that it filters out.
func TestConfFilterIsForTheWholeSection(t *testing.T) {
	_, _, err := Load(closed(Options{Dirs: []string{"testdata"}, Host: &Host{CPUVendor: "Generic ARM"}}), testTable)
	require.Error(t, err)
	assert.Contains(t, err.Error(), `bad value "1" from testdata/ucx.conf:16`)
}

func TestConfWithoutPrefix(t *testing.T) {
	s, warnings := load(t, Options{Dirs: []string{write(t, "ucx.conf", "TLS=a\n")}})
	assert.Empty(t, warnings)
	assert.Equal(t, "a", testTLS.Get(s).String())
}

func TestConfDuplicates(t *testing.T) {
	dir := write(t, "ucx.conf", "UCX_TLS=a\nTLS=b\n[x]\nUCX_TLS=c\n[x]\nUCX_TLS=d\n")
	s, warnings := load(t, Options{Dirs: []string{dir}})
	assert.Equal(t, "d", testTLS.Get(s).String())
	assert.Equal(t, dir+"/ucx.conf: UCX_TLS is set in lines 1 and 2; the later one counts", texts(warnings))
}

func TestConfMalformed(t *testing.T) {
	dir := write(t, "ucx.conf", "UCX_TLS=a\nUCX_TLS\n\n[amd\n")
	path := filepath.Join(dir, "ucx.conf")
	assert.Equal(t, path+":2: want key=value or [section]\n"+path+":4: want key=value or [section]", loadErr(t, dir))
}

func TestIdentifyCPU(t *testing.T) {
	x86 := func(vendor, family, model string) string {
		return "processor\t: 0\nvendor_id\t: " + vendor + "\ncpu family\t: " + family + "\nmodel\t\t: " + model +
			"\nmodel name\t: x\n\nprocessor\t: 1\nvendor_id\t: other\n"
	}
	cases := []struct{ name, cpuinfo, vendor, model string }{
		{"skylake", x86("GenuineIntel", "6", "85"), "Intel", "Skylake"},
		{"new intel", x86("GenuineIntel", "6", "207"), "Intel", "unknown"},
		{"milan", x86("AuthenticAMD", "25", "1"), "AMD", "Milan"},
		{"genoa", x86("AuthenticAMD", "25", "17"), "AMD", "Genoa"},
		{"turin", x86("AuthenticAMD", "26", "2"), "AMD", "Turin"},
		{"zhaoxin", x86("  Shanghai  ", "7", "59"), "Zhaoxin", "Lujiazui"},
		{"no number", x86("AuthenticAMD", "", "x"), "AMD", "unknown"},
		{"foreign x86", x86("HygonGenuine", "24", "1"), "unknown", "unknown"},
		{"grace", "CPU implementer : 0x41\nCPU part : 0xd4f\n", "Nvidia", "Grace"},
		{"a64fx", "CPU implementer : 0x46\nCPU part : 0x001\n", "Fujitsu ARM", "ARM 64-bit"},
		{"graviton", "CPU implementer\t: 0x41\nCPU part\t: 0xd40\n", "Generic ARM", "ARM 64-bit"},
		{"power", "cpu\t\t: POWER9, altivec supported\n", "Generic PPC", "unknown"},
		{"risc-v", "isa\t: rv64imafdc\n", "Generic RV64G", "RV64G"},
		{"nothing", "", "unknown", "unknown"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			vendor, model := identifyCPU(c.cpuinfo)
			assert.Equal(t, c.vendor, vendor)
			assert.Equal(t, c.model, model)
		})
	}
}

func TestLocalHost(t *testing.T) {
	h := localHost()
	assert.NotEmpty(t, h.CPUVendor)
	assert.NotEmpty(t, h.CPUModel)
	assert.Equal(t, "unknown", h.field("DMI no such field"))
}

func TestReadDMI(t *testing.T) {
	dir := write(t, "product_name", " Box 7\n", "sys_vendor", "Acme\n")
	h := Host{DMI: readDMI(dir)}
	assert.Equal(t, "Box 7", h.field("DMI product name"))
	assert.Equal(t, "Acme", h.field("dmi Sys Vendor"))
	assert.False(t, isFilter("DMI "))
	assert.Empty(t, readDMI("/no/such"))
}
