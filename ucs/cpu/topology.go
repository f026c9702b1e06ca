package cpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/goucx/goucx/ucs"
)

// Unknown is the value of a number that the system does not report.
const Unknown = -1

// Topology holds the online processors of a machine, in ascending order.
type Topology struct {
	CPUs []CPU
}

// CPU is a logical processor. Core and Package are Unknown if the system does not report
// them. Core is unique within Package.
type CPU struct {
	ID      int
	Core    int
	Package int
	Node    int // NUMA node; 0 on a machine without nodes
	Caches  []Cache
}

// Cache is a cache of a processor.
type Cache struct {
	Level  int
	Type   string // "Data", "Instruction", "Unified"
	Size   int    // bytes
	Shared []int  // processors that share it
}

const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
)

// System reads the topology of this machine.
//
// Errors: ucs.ErrUnsupported on systems without sysfs; otherwise as for ReadTopology.
func System() (*Topology, error) {
	t, err := ReadTopology(os.DirFS("/"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w (%w)", ucs.ErrUnsupported, err)
	}
	return t, err
}

// ReadTopology reads the topology from a file system with sys/devices/system in the layout
// of Linux. Only the list of online processors is required. Other missing values are
// Unknown or empty.
//
// Errors: those of root; ucs.ErrInvalid for malformed files.
func ReadTopology(root fs.FS) (*Topology, error) {
	online, err := readList(root, cpuDir+"/online")
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	nodes, err := readNodes(root)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	t := &Topology{}
	for _, id := range online {
		c, err := readCPU(root, id)
		if err != nil {
			return nil, fmt.Errorf("topology of processor %d: %w", id, err)
		}
		c.Node = nodes[id]
		t.CPUs = append(t.CPUs, c)
	}
	return t, nil
}

// readNodes returns the NUMA node of each processor.
func readNodes(root fs.FS) (map[int]int, error) {
	nodes := map[int]int{}
	list, err := readList(root, nodeDir+"/online")
	if errors.Is(err, fs.ErrNotExist) {
		return nodes, nil
	}
	if err != nil {
		return nil, err
	}
	for _, n := range list {
		cpus, err := readList(root, fmt.Sprintf("%s/node%d/cpulist", nodeDir, n))
		if err != nil {
			return nil, err
		}
		for _, c := range cpus {
			nodes[c] = n
		}
	}
	return nodes, nil
}

func readCPU(root fs.FS, id int) (c CPU, err error) {
	c.ID = id
	dir := fmt.Sprintf("%s/cpu%d", cpuDir, id)
	if c.Core, err = readNumber(root, dir+"/topology/core_id"); err != nil {
		return c, err
	}
	if c.Package, err = readNumber(root, dir+"/topology/physical_package_id"); err != nil {
		return c, err
	}
	for i := 0; ; i++ {
		cache, err := readCache(root, fmt.Sprintf("%s/cache/index%d", dir, i))
		if errors.Is(err, fs.ErrNotExist) {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		c.Caches = append(c.Caches, cache)
	}
}

func readCache(root fs.FS, dir string) (c Cache, err error) {
	if c.Type, err = readText(root, dir+"/type"); err != nil {
		return c, err
	}
	if c.Level, err = readNumber(root, dir+"/level"); err != nil {
		return c, err
	}
	size, err := readText(root, dir+"/size")
	if err != nil {
		return c, err
	}
	if c.Size, err = parseSize(size); err != nil {
		return c, fmt.Errorf("%s/size: %w", dir, err)
	}
	c.Shared, err = readList(root, dir+"/shared_cpu_list")
	return c, err
}

// parseSize parses a size in bytes such as "48K".
func parseSize(s string) (int, error) {
	digits, shift := strings.TrimRight(s, "KMG"), 0
	switch s[len(digits):] {
	case "":
	case "K":
		shift = 10
	case "M":
		shift = 20
	case "G":
		shift = 30
	default:
		return 0, fmt.Errorf("size %q: %w", s, ucs.ErrInvalid)
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || n<<shift>>shift != n || n<<shift > 1<<40 {
		return 0, fmt.Errorf("size %q: %w", s, ucs.ErrInvalid)
	}
	return int(n << shift), nil
}

func readText(root fs.FS, name string) (string, error) {
	b, err := fs.ReadFile(root, name)
	return strings.TrimSpace(string(b)), err
}

func readList(root fs.FS, name string) ([]int, error) {
	s, err := readText(root, name)
	if err != nil {
		return nil, err
	}
	list, err := ParseList(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}

// readNumber returns Unknown if the file does not exist.
func readNumber(root fs.FS, name string) (int, error) {
	s, err := readText(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return Unknown, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s: %q: %w", name, s, ucs.ErrInvalid)
	}
	return int(n), nil
}
