package cpu

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// machine reads a sysfs from testdata: a line per file, its path, a tab, and
// its text.
func machine(t *testing.T) fstest.MapFS {
	t.Helper()
	text, err := os.ReadFile("testdata/two-sockets.txt")
	require.NoError(t, err)
	root := fstest.MapFS{}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(line, "\t")
		require.True(t, ok, line)
		root[name] = &fstest.MapFile{Data: []byte(value)}
	}
	return root
}

func TestReadTopology(t *testing.T) {
	topo, err := ReadTopology(machine(t))
	require.NoError(t, err)
	require.Len(t, topo.CPUs, 7, "one of eight is offline")
	assert.Equal(t, CPU{
		ID: 6, Core: 0, Package: 1, Node: 1,
		Caches: []Cache{
			{1, "Data", 48 << 10, []int{2, 6}},
			{1, "Instruction", 32 << 10, []int{2, 6}},
			{2, "Unified", 2 << 20, []int{2, 6}},
			{3, "Unified", 105 << 20, []int{2, 3, 6}},
		},
	}, topo.CPUs[6])
	assert.Equal(t, 0, topo.CPUs[5].Node)
	assert.Equal(t, 1, topo.CPUs[5].Core)
}

func TestReadTopologyToleratesWhatIsMissing(t *testing.T) {
	root := fstest.MapFS{"sys/devices/system/cpu/online": {Data: []byte("0\n")}}
	topo, err := ReadTopology(root)
	require.NoError(t, err)
	assert.Equal(t, []CPU{{ID: 0, Core: Unknown, Package: Unknown}}, topo.CPUs)
	_, err = ReadTopology(fstest.MapFS{})
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestReadTopologyRefusesGarbage(t *testing.T) {
	for _, name := range []string{
		"cpu/online", "node/online", "node/node0/cpulist", "cpu/cpu3/topology/core_id",
		"cpu/cpu3/topology/physical_package_id", "cpu/cpu3/cache/index0/level",
		"cpu/cpu3/cache/index0/size", "cpu/cpu3/cache/index0/shared_cpu_list",
	} {
		t.Run(name, func(t *testing.T) {
			root := machine(t)
			full := "sys/devices/system/" + name
			require.Contains(t, root, full)
			root[full] = &fstest.MapFile{Data: []byte("1-x")}
			_, err := ReadTopology(root)
			assert.ErrorIs(t, err, ucs.ErrInvalid)
		})
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "64": 64, "48K": 48 << 10, "105M": 105 << 20, "1G": 1 << 30} {
		got, err := parseSize(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, text := range []string{"", "K", "48KB", "48k", "-1K", "1KK", "4294967296K", "2147483647G", "1.5M"} {
		_, err := parseSize(text)
		assert.ErrorIs(t, err, ucs.ErrInvalid, text)
	}
}

func FuzzReadTopology(f *testing.F) {
	f.Add("0-1", "0", "48K", "0-1")
	f.Add("", "-1", "", ",")
	f.Fuzz(func(_ *testing.T, online, number, size, shared string) {
		file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
		_, _ = ReadTopology(fstest.MapFS{ // must not panic, nor read processors without end
			"sys/devices/system/cpu/online":                            file(online),
			"sys/devices/system/cpu/cpu0/topology/core_id":             file(number),
			"sys/devices/system/cpu/cpu0/cache/index0/type":            file("Data"),
			"sys/devices/system/cpu/cpu0/cache/index0/level":           file(number),
			"sys/devices/system/cpu/cpu0/cache/index0/size":            file(size),
			"sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list": file(shared),
			"sys/devices/system/node/online":                           file("0"),
			"sys/devices/system/node/node0/cpulist":                    file(shared),
		})
	})
}

func TestSystem(t *testing.T) {
	topo, err := System()
	if errors.Is(err, ucs.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NotEmpty(t, topo.CPUs)
	ids := map[int]bool{}
	for _, c := range topo.CPUs {
		ids[c.ID] = true
	}
	allowed, err := Affinity()
	require.NoError(t, err)
	for _, c := range allowed {
		assert.True(t, ids[c], "processor %d is allowed but not online", c)
	}
}

func TestReadModel(t *testing.T) {
	for want, text := range map[string]string{
		"AMD EPYC 7763 64-Core Processor": "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7763 64-Core Processor\n\nprocessor\t: 1\nmodel name\t: other\n",
		"0x41 0xd4f":                      "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n",
		"":                                "no colon\n:\n\n",
	} {
		m, err := ReadModel(fstest.MapFS{"proc/cpuinfo": {Data: []byte(text)}})
		require.NoError(t, err)
		assert.Equal(t, want, m.String())
	}
	_, err := ReadModel(fstest.MapFS{})
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.Equal(t, SystemModel(), SystemModel())
}
