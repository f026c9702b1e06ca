package wireup

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

// Attributes of the transports over verbs, as they are measured.
var (
	rcNetAttr = uct.IfaceAttr{
		Ops: selfAttr.Ops, AM: uct.Limit{Bcopy: 8176}, PeerFailure: true,
		Estimate: uct.Estimate{Dedicated: 4 << 30, LatencyNS: 2200, OverheadNS: 60},
	}
	rcProcessAttr = uct.IfaceAttr{
		Ops: selfAttr.Ops, AM: uct.Limit{Bcopy: 8176}, PeerFailure: true,
		Estimate: uct.Estimate{Dedicated: 8 << 30, LatencyNS: 200, OverheadNS: 60},
	}
	udNetAttr = uct.IfaceAttr{
		Ops: uct.OpsAM | uct.OpPending, AM: uct.Limit{Bcopy: 4072}, PeerFailure: true,
		Estimate: uct.Estimate{Dedicated: 1500 << 20, LatencyNS: 2500, OverheadNS: 120},
	}
)

// spot is where a worker runs.
type spot struct {
	boot, net, process, worker string
	env                        string // what it sets, "A=b C=d"
	devices                    string // "" : inproc lo lo.2 eth0 eth0.2
}

// located is an iface that reaches those of its own kind at the same place.
type located struct{ kind, place, name string }

func (f located) DeviceAddress(b []byte) []byte { return append(b, f.kind+" "+f.place...) }
func (f located) Address(b []byte) []byte       { return append(b, f.name...) }

func (f located) Reachable(a uct.Address) (bool, string) {
	kind, place, _ := strings.Cut(string(a.Device), " ")
	switch {
	case kind != f.kind:
		return false, "another kind"
	case place != f.place:
		return false, "elsewhere"
	}
	return true, ""
}

// ifaces are those that a worker there opens, numbered as a context does.
func (s spot) ifaces(t *testing.T) (ls []LocalIface) {
	t.Helper()
	sel, err := Select(settings(t, strings.Fields(s.env)...), components)
	require.NoError(t, err)
	domain := 0
	add := func(name string, id uct.TransportID, kind uct.DeviceKind, device string, a *uct.IfaceAttr, f located) {
		f.name = s.worker + "/" + name + "/" + device
		info := uct.IfaceInfo{Transport: name, ID: id, Device: device, Kind: kind}
		if use, _ := sel.Iface(info); use == UseAll {
			ls = append(ls, LocalIface{Info: info, Attr: a, Domain: domain, Iface: f})
		}
		domain++
	}
	add("self", uct.TransportSelf, uct.DeviceSelf, "memory0", &selfAttr, located{kind: "self", place: s.worker})
	add("shm", uct.TransportShm, uct.DeviceShm, "memory", &shmAttr, located{kind: "shm", place: s.boot + s.net})
	devices := s.devices
	if devices == "" {
		devices = "inproc lo lo.2 eth0 eth0.2"
	}
	for d := range strings.FieldsSeq(devices) {
		add("rc", uct.TransportRC, uct.DeviceNet, d+":1", rcAttrOf(d), s.port(d))
	}
	for d := range strings.FieldsSeq(devices) {
		add("ud", uct.TransportUD, uct.DeviceNet, d+":1", &udNetAttr, s.port(d))
	}
	return ls
}

func rcAttrOf(device string) *uct.IfaceAttr {
	if device == "inproc" {
		return &rcProcessAttr
	}
	return &rcNetAttr
}

// port says how far a device reaches; the second of an interface has IPv6.
func (s spot) port(device string) located {
	name, second, _ := strings.Cut(device, ".")
	switch name {
	case "inproc":
		return located{kind: name, place: s.process}
	case "lo":
		return located{kind: name + second, place: s.boot + s.net}
	default:
		return located{kind: "net" + second, place: "everywhere"}
	}
}

// chosen gives the iface for each purpose.
func chosen(ls []LocalIface, p Plan) string {
	var names []string
	for i := range NumPurposes {
		name := "-"
		if c, ok := p.Best(i); ok {
			name = ls[c.Local].Info.Transport + "/" + ls[c.Local].Info.Device
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// What is chosen of all transports on all devices, from either side, in whatever
// order they stand.
func TestChoiceOfAllTransports(t *testing.T) {
	here := spot{boot: "b1", net: "n1", process: "p1", worker: "w1"}
	with := func(s spot, env string) spot { s.env = env; return s }
	process := spot{boot: "b1", net: "n1", process: "p2", worker: "w2"}
	container := spot{boot: "b1", net: "n2", process: "p2", worker: "w2"}
	host := spot{boot: "b2", net: "n1", process: "p2", worker: "w2"}
	worker := spot{boot: "b1", net: "n1", process: "p1", worker: "w2"}
	old, young := host, host
	old.devices, young.devices = "inproc lo eth0", "inproc lo.2 eth0.2"
	three := func(name string) string { return name + " " + name + " " + name }
	for _, c := range []struct {
		name string
		a, b spot
		want string // for messages, put and get, atomics
	}{
		{"the worker itself", here, here, three("self/memory0")},
		{"another worker of the process", here, worker, three("shm/memory")},
		{"the same, by rc", with(here, "UCX_TLS=rc"), with(worker, "UCX_TLS=rc"), three("rc/inproc:1")},
		{"the same, by ud", with(here, "UCX_TLS=ud"), worker, "ud/inproc:1 - -"},
		{"another process", here, process, three("shm/memory")},
		{"the same, by rc", with(here, "UCX_TLS=rc"), process, three("rc/lo:1")},
		{"the same, by ud", here, with(process, "UCX_TLS=ud"), "ud/lo:1 - -"},
		{"the same, by either", with(here, "UCX_TLS=ib"), process, three("rc/lo:1")},
		{"the same, without loopback", with(here, "UCX_TLS=^sm UCX_NET_DEVICES=^lo,lo.2"), process, three("rc/eth0:1")},
		{"a container of the host", here, container, three("rc/eth0:1")},
		{"the same, by ud", with(here, "UCX_TLS=self,ud"), container, "ud/eth0:1 - -"},
		{"the same, by loopback", with(here, "UCX_NET_DEVICES=lo"), container, "- - -"},
		{"another host", here, host, three("rc/eth0:1")},
		{"the same, by ud", with(here, "UCX_TLS=shm,ud"), host, "ud/eth0:1 - -"},
		{"the same, by a device", here, with(host, "UCX_NET_DEVICES=eth0.2:1"), three("rc/eth0.2:1")},
		{"the same, by loopback", here, with(host, "UCX_NET_DEVICES=lo:1,lo.2:1"), "- - -"},
		{"the same, within hosts", with(here, "UCX_TLS=self,sm"), host, "- - -"},
		{"a host without IPv6", here, old, three("rc/eth0:1")},
		{"a host without IPv4", here, young, three("rc/eth0.2:1")},
		{"one has IPv4, the other IPv6", with(here, "UCX_NET_DEVICES=eth0"), young, "- - -"},
		{"ud connects only", with(here, "UCX_TLS=rc,ud:aux,self"), host, three("rc/eth0:1")},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			for range 20 {
				a, b := c.a.ifaces(t), c.b.ifaces(t)
				r.Shuffle(len(a), func(i, j int) { a[i], a[j] = a[j], a[i] })
				r.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
				symmetric(t, a, b, c.want)
			}
		})
	}
}

// symmetric checks that either side chooses want, and the same pair of ifaces for
// messages and atomics.
func symmetric(t *testing.T, a, b []LocalIface, want string) {
	t.Helper()
	av, bv := viewIn(t, a), viewIn(t, b)
	there, _ := Choose(a, bv, ForAM, ForRMA, ForAMO)
	back, refused := Choose(b, av, ForAM, ForRMA, ForAMO)
	require.Equal(t, want, chosen(a, there))
	require.Equal(t, want, chosen(b, back))
	for _, p := range []Purpose{ForAM, ForAMO} {
		x, ok := there.Best(p)
		y, _ := back.Best(p)
		require.Equal(t, [2]int{x.Local, x.Remote}, [2]int{y.Remote, y.Local})
		if !ok {
			require.NotEmpty(t, refused, "each has its reason")
		}
	}
}

func viewIn(t *testing.T, ls []LocalIface) View {
	t.Helper()
	b, _, err := Build(View{}, ls)
	require.NoError(t, err)
	v, err := Parse(b)
	require.NoError(t, err)
	return v
}

// Two hosts on the same two networks, which stand in other orders: both choose
// one of them.
func TestChoiceOfCrossedNetworks(t *testing.T) {
	on := func(worker string, networks ...string) (ls []LocalIface) {
		for i, n := range networks {
			ls = append(ls, LocalIface{
				Info: uct.IfaceInfo{Transport: "rc", ID: uct.TransportRC, Device: "eth" + string(rune('0'+i)), Kind: uct.DeviceNet},
				Attr: &rcNetAttr, Domain: i, Iface: located{"net", n, worker + n},
			})
		}
		return ls
	}
	a, b := on("w1", "x", "y"), on("w2", "y", "x")
	there, _ := Choose(a, viewIn(t, b), ForAM)
	back, _ := Choose(b, viewIn(t, a), ForAM)
	require.Len(t, there[ForAM], 2)
	assert.Equal(t, there[ForAM][0].Local, back[ForAM][0].Remote)
	assert.Equal(t, there[ForAM][0].Remote, back[ForAM][0].Local)
}
