package wireup

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

// The estimates are those of UCX.
var (
	selfAttr = uct.IfaceAttr{
		Ops: uct.OpsAM | uct.OpsPut | uct.OpsGet | uct.OpAtomics | uct.OpPending, AM: uct.Limit{Bcopy: 8192},
		Estimate: uct.Estimate{Dedicated: 19360e6, OverheadNS: 10},
	}
	shmAttr = uct.IfaceAttr{
		Ops: selfAttr.Ops, AM: uct.Limit{Bcopy: 3500}, PeerFailure: true,
		Estimate: uct.Estimate{Dedicated: 15360e6, LatencyNS: 80, OverheadNS: 10},
	}
	rcAttr = uct.IfaceAttr{
		Ops: selfAttr.Ops, AM: uct.Limit{Bcopy: 8192}, Connect: uct.ConnectToEndpoint, PeerFailure: true,
		Estimate: uct.Estimate{Shared: 12000e6, LatencyNS: 600, LatencyPerEpNS: 1, OverheadNS: 75},
	}
	udAttr = uct.IfaceAttr{
		Ops: uct.OpsAM | uct.OpPending, AM: uct.Limit{Bcopy: 4096},
		Estimate: uct.Estimate{Shared: 12000e6, LatencyNS: 630, OverheadNS: 105},
	}
)

func local(name string, id uct.TransportID, a *uct.IfaceAttr, f fakeIface) LocalIface {
	kind := uct.DeviceNet
	if id <= uct.TransportShm {
		kind = uct.DeviceKind(id - 1)
	}
	return LocalIface{Info: uct.IfaceInfo{Transport: name, ID: id, Device: f.device, Kind: kind}, Attr: a, Iface: f}
}

func localSelf(refuse ...string) LocalIface {
	return local("self", uct.TransportSelf, &selfAttr, fakeIface{device: "memory", iface: "me", refuse: refusals(refuse)})
}

func localShm(refuse ...string) LocalIface {
	return local("shm", uct.TransportShm, &shmAttr, fakeIface{device: "memory", iface: "my socket", refuse: refusals(refuse)})
}

func localNet(name string, id uct.TransportID, device string, a *uct.IfaceAttr) LocalIface {
	return local(name, id, a, fakeIface{device: device, iface: name + "@" + device})
}

func refusals(pairs []string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// numbered gives ls with a domain for each device, in the order in which they
// first come.
func numbered(ls []LocalIface) []LocalIface {
	ls = slices.Clone(ls)
	var devices []uct.IfaceInfo
	for i := range ls {
		d := uct.IfaceInfo{Device: ls[i].Info.Device, Kind: ls[i].Info.Kind}
		n := slices.Index(devices, d)
		if n < 0 {
			n = len(devices)
			devices = append(devices, d)
		}
		ls[i].Domain = n
	}
	return ls
}

func viewOf(t *testing.T, ls ...LocalIface) View {
	b, _, err := Build(View{}, numbered(ls))
	require.NoError(t, err)
	v, err := Parse(b)
	require.NoError(t, err)
	return v
}

// show gives a plan as "local>remote" indexes, best first.
func show(p Plan) string {
	var all []string
	for purpose, cs := range p {
		var s strings.Builder
		s.WriteString(Purpose(purpose).String() + ":")
		for _, c := range cs {
			fmt.Fprintf(&s, " %d>%d", c.Local, c.Remote)
		}
		all = append(all, s.String())
	}
	return strings.Join(all, "; ")
}

func showRefusals(rs []uct.Refusal) string {
	var all []string
	for _, r := range rs {
		all = append(all, r.String())
	}
	return strings.Join(all, "; ")
}

func TestChoose(t *testing.T) {
	rc0, rc1 := localNet("rc", uct.TransportRC, "nic0", &rcAttr), localNet("rc", uct.TransportRC, "nic1", &rcAttr)
	ud := localNet("ud", uct.TransportUD, "nic0", &udAttr)
	noAM := shmAttr
	noAM.Ops &^= uct.OpAMBcopy
	smallAM := shmAttr
	smallAM.AM.Bcopy = 63
	noAtomics := shmAttr
	noAtomics.Ops &^= uct.OpAtomics
	iface := func(a *uct.IfaceAttr) LocalIface {
		return local("shm", uct.TransportShm, a, fakeIface{device: "memory", iface: "my socket"})
	}
	for _, c := range []struct {
		name    string
		local   []LocalIface
		remote  []LocalIface
		wants   []Purpose
		plan    string
		refused string
	}{
		{
			"self before shm, whatever the order",
			[]LocalIface{localShm(), localSelf()},
			[]LocalIface{localShm(), localSelf()},
			[]Purpose{ForAM, ForRMA, ForAMO},
			"messages: 1>1 0>0; put and get: 1>1 0>0; atomics: 1>1 0>0", "",
		},
		{
			"another process: self is refused",
			[]LocalIface{localSelf("me", "another worker"), localShm()},
			[]LocalIface{localSelf(), localShm()},
			[]Purpose{ForAM, ForRMA},
			"messages: 1>1; put and get: 1>1; atomics:", "self/memory: another worker",
		},
		{
			"another host: rc before ud, both devices",
			[]LocalIface{localSelf("me", "another worker"), localShm("my socket", "another host"), ud, rc0, rc1},
			[]LocalIface{localSelf(), localShm(), ud, rc0, rc1},
			[]Purpose{ForAM, ForRMA},
			"messages: 3>3 3>4 4>3 4>4 2>2; put and get: 3>3 3>4 4>3 4>4; atomics:",
			"self/memory: another worker; shm/memory: another host; ud/nic0: put and get: does not put and get",
		},
		{
			"nothing wanted, nothing planned",
			[]LocalIface{localSelf()},
			[]LocalIface{localSelf()},
			nil,
			"messages:; put and get:; atomics:", "",
		},
		{
			"no transport in common",
			[]LocalIface{localSelf()},
			[]LocalIface{ud},
			[]Purpose{ForAM},
			"messages:; put and get:; atomics:",
			"self/memory: the peer does not have it; ud: the peer has it, not in use here",
		},
		{
			"no ifaces at all", nil, nil,
			[]Purpose{ForAM},
			"messages:; put and get:; atomics:", "",
		},
		{
			"sender without messages",
			[]LocalIface{iface(&noAM)},
			[]LocalIface{localShm()},
			[]Purpose{ForAM, ForAMO},
			"messages:; put and get:; atomics: 0>0", "shm/memory: messages: does not send active messages",
		},
		{
			"messages too small",
			[]LocalIface{iface(&smallAM)},
			[]LocalIface{localShm()},
			[]Purpose{ForAM},
			"messages:; put and get:; atomics:", "shm/memory: messages: does not send active messages",
		},
		{
			"receiver without messages",
			[]LocalIface{localShm()},
			[]LocalIface{iface(&noAM)},
			[]Purpose{ForAM},
			"messages:; put and get:; atomics:", "shm/memory: messages: the peer does not receive active messages",
		},
		{
			"no atomics",
			[]LocalIface{iface(&noAtomics)},
			[]LocalIface{localShm()},
			[]Purpose{ForRMA, ForAMO},
			"messages:; put and get: 0>0; atomics:", "shm/memory: atomics: has no atomics",
		},
		{
			"ways to connect differ",
			[]LocalIface{localNet("rc", uct.TransportRC, "nic0", &udAttr)},
			[]LocalIface{rc0},
			[]Purpose{ForAM},
			"messages:; put and get:; atomics:", "rc/nic0: the two sides connect in different ways",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan, refused := Choose(numbered(c.local), viewOf(t, c.remote...), c.wants...)
			assert.Equal(t, c.plan, show(plan))
			assert.Equal(t, c.refused, showRefusals(refused))
			best, ok := plan.Best(ForAM)
			assert.Equal(t, len(plan[ForAM]) > 0, ok)
			if ok {
				assert.Equal(t, plan[ForAM][0], best)
			}
		})
	}
}

// Both sides of a pair choose the same pair of ifaces, with the same score,
// though each sees only the other's quantised figures.
func TestChooseIsSymmetric(t *testing.T) {
	slow := rcAttr
	slow.Estimate.LatencyNS, slow.Estimate.OverheadNS = 777.7, 83.3
	a := []LocalIface{localNet("rc", uct.TransportRC, "nic0", &slow), localNet("rc", uct.TransportRC, "nic1", &rcAttr), localNet("ud", uct.TransportUD, "nic0", &udAttr)}
	b := []LocalIface{localNet("ud", uct.TransportUD, "nic5", &udAttr), localNet("rc", uct.TransportRC, "nic6", &rcAttr), localNet("rc", uct.TransportRC, "nic7", &slow)}
	there, _ := Choose(numbered(a), viewOf(t, b...), ForAM, ForAMO)
	back, _ := Choose(numbered(b), viewOf(t, a...), ForAM, ForAMO)
	for i := range back[ForAM] {
		c := &back[ForAM][i]
		c.Local, c.Remote = c.Remote, c.Local
	}
	require.NotEmpty(t, there[ForAM])
	assert.Equal(t, there[ForAM][0], back[ForAM][0])
	byPair := func(x, y Candidate) int { return (x.Local*10 + x.Remote) - (y.Local*10 + y.Remote) }
	slices.SortFunc(there[ForAM], byPair)
	slices.SortFunc(back[ForAM], byPair)
	assert.Equal(t, there[ForAM], back[ForAM])
}

func TestChooseIsDeterministic(t *testing.T) {
	ls := []LocalIface{localShm(), localSelf(), localNet("rc", uct.TransportRC, "nic0", &rcAttr)}
	ls = numbered(ls)
	v := viewOf(t, ls...)
	first, firstRefused := Choose(ls, v, ForAM, ForRMA, ForAMO)
	for range 10 {
		plan, refused := Choose(ls, v, ForAM, ForRMA, ForAMO)
		assert.Equal(t, first, plan)
		assert.Equal(t, firstRefused, refused)
	}
}

func TestScoresAreUCXs(t *testing.T) {
	self, shm := AttrOf(&selfAttr), AttrOf(&shmAttr)
	assert.InEpsilon(t, 1e-3/20e-9, scoreLatency(self, self), 1e-9)
	assert.InEpsilon(t, 1e-3/100e-9, scoreLatency(shm, shm), 1e-9)
	assert.InEpsilon(t, 1e-3/(90e-9+4096/15360e6), scoreRMA(shm, shm), 0.07)
	assert.Zero(t, scoreRMA(shm, Attr{}), "no bandwidth ranks last")
}
