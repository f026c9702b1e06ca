package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// features maps the letters of -u.
var features = map[rune]ucp.Feature{'a': ucp.FeatureAtomics, 'r': ucp.FeatureRMA, 't': ucp.FeatureTag, 'm': ucp.FeatureAM}

// parseFeatures parses -u; no feature means all. UCX's modifiers w and e have no effect: workers
// always support wake-up, and endpoints always have error handling.
func parseFeatures(letters string) (ucp.Feature, error) {
	var set ucp.Feature
	for _, c := range letters {
		f, ok := features[c]
		switch {
		case ok:
			set |= f
		case c == 'w', c == 'e':
		case strings.ContainsRune("sxd", c):
			return 0, usagef("-u %s: feature '%c' is not supported yet: %w", letters, c, ucs.ErrUnsupported)
		default:
			return 0, usagef("-u %s: '%c' is no feature; want letters of a, r, t, m", letters, c)
		}
	}
	return set, nil
}

func (t *tool) openContext() (*ucp.Context, error) {
	set, err := t.contextSettings()
	if err != nil {
		return nil, err
	}
	f, err := parseFeatures(t.features)
	if err != nil {
		return nil, err
	}
	return ucp.Open(ucp.Config{Providers: t.providers, Features: f, Settings: set, Log: t.log})
}

// context prints -p.
func (t *tool) context() error {
	set, err := t.contextSettings()
	if err != nil {
		return err
	}
	s, err := openStage(t.providers, set)
	if err != nil {
		return err
	}
	t.resources(s)
	t.estimates(s)
	if err := s.close(); err != nil {
		return err
	}
	cost := startCost()
	c, err := t.openContext()
	if err != nil {
		return err
	}
	t.cost(cost)
	return c.Close()
}

func (t *tool) resources(s *stage) {
	t.line("")
	t.line("UCP context")
	t.line("")
	for i, p := range t.providers {
		t.line("    component %d  :  %s", i, p.Name())
	}
	t.line("")
	for i, d := range s.domains {
		t.line("           md %d  :  component %d  %s", i, d.component, d.name)
	}
	t.line("")
	var devices []string
	for i, f := range s.ifaces {
		n := slices.Index(devices, f.Info.Device)
		if n < 0 {
			n = len(devices)
			devices = append(devices, f.Info.Device)
		}
		t.line("     resource %d  :  md %d  dev %d  flags -- %s/%s", i, f.Domain, n, f.Info.Transport, f.Info.Device)
	}
	t.line("")
}

// estimates prints what the numbers of endpoints of -n and -N mean for the connections.
func (t *tool) estimates(s *stage) {
	if t.endpoints == "" && t.perNode == "" {
		return
	}
	t.line("    estimated endpoints: %s, per node: %s", cmp.Or(t.endpoints, "unknown"), cmp.Or(t.perNode, "unknown"))
	for _, f := range s.ifaces {
		n, _ := strconv.Atoi(t.endpoints) // "" or checked
		if f.Info.Kind == uct.DeviceShm && t.perNode != "" {
			n, _ = strconv.Atoi(t.perNode)
		}
		if limit := f.Attr.MaxConnections; limit > 0 && n > limit {
			t.line("    %s/%s: %d connections are live at once; idle ones of the others sleep", f.Info.Transport, f.Info.Device, limit)
		}
	}
	t.line("")
}

// worker prints -w.
func (t *tool) worker() (err error) {
	c, err := t.openContext()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	cost := startCost()
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	if err != nil {
		return err
	}
	v, err := wireup.Parse(w.Address())
	if err != nil {
		return err
	}
	names, err := t.transportNames()
	if err != nil {
		return err
	}
	host, _ := os.Hostname() // for display only; empty if unknown
	t.line("")
	t.line("UCP worker '%s:%d'", host, os.Getpid())
	t.line("")
	t.line("                  owner: %v", v.Owner())
	t.line("                address: %d bytes", len(w.Address()))
	if atomics := t.atomics(names, v); t.features == "" || strings.Contains(t.features, "a") {
		t.line("                atomics: %s", atomics)
	}
	for _, e := range v.Entries {
		t.line("%23s: %d bytes (device %d, iface %d)", names[e.Transport], len(e.Addr.Device)+len(e.Addr.Iface), len(e.Addr.Device), len(e.Addr.Iface))
	}
	t.line("")
	t.cost(cost)
	return nil
}

// atomics returns the entries of the address that have atomics, with their numbers: "0:self".
func (t *tool) atomics(names map[uct.TransportID]string, v wireup.View) string {
	var list []string
	for i, e := range v.Entries {
		if e.Attr.Ops.Has(uct.OpAtomics) {
			list = append(list, fmt.Sprintf("%d:%s", i, names[e.Transport]))
		}
	}
	return strings.Join(list, ", ")
}

// cost is a snapshot of time, heap and descriptors before an operation.
type cost struct {
	at   ucs.Time
	heap int
	fds  int
}

func startCost() cost {
	return cost{heap: heapBytes(), fds: openFDs(), at: ucs.Now()}
}

// cost prints UCX's two lines about the resources used since before.
func (t *tool) cost(before cost) {
	took := ucs.Now().Sub(before.at)
	t.line("memory: %.2fMB, file descriptors: %d", float64(heapBytes()-before.heap)/(1<<20), openFDs()-before.fds)
	t.line("create time: %.3f ms", float64(took)/float64(time.Millisecond))
	t.line("")
}

// heapBytes returns the heap bytes in use after a garbage collection.
func heapBytes() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// openFDs returns the number of open descriptors, 0 if the system does not list them.
func openFDs() int {
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(dir)
}

// transportNames returns the names of the transports that a worker opens, by ID.
func (t *tool) transportNames() (map[uct.TransportID]string, error) {
	set, err := t.contextSettings()
	if err != nil {
		return nil, err
	}
	s, err := openStage(t.providers, set)
	if err != nil {
		return nil, err
	}
	names := map[uct.TransportID]string{}
	for _, f := range s.ifaces {
		names[f.Info.ID] = f.Info.Transport
	}
	return names, s.close()
}
