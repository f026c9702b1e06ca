package ucptest

import (
	"cmp"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/transports/rc"
	"github.com/goucx/goucx/transports/ud"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// impatient notices dead peers within seconds.
var impatient = []string{
	"UCX_RC_TIMEOUT=300ms", "UCX_RC_KEEPALIVE_INTERVAL=500ms", "UCX_RC_CONNECT_TIMEOUT=3s",
	"UCX_UD_TIMEOUT=4s", "UCX_UD_KEEPALIVE_INTERVAL=500ms",
}

var (
	inproc   = []string{"UCX_SOFT_LINK=inproc"}
	loopback = []string{"UCX_SOFT_LINK=udp", "UCX_SOFT_ADDR=127.0.0.1"}
)

// over makes the factory of a column over the transports of these names.
func over(t *testing.T, column string, modes []ucp.ThreadMode, env []string, names ...string) Factory {
	f := Factory{Column: column, Modes: modes, Env: slices.Concat(env, impatient)}
	for _, n := range names {
		for _, c := range transports.All() {
			if c.Name() == n {
				f.Reads, f.Takes = f.Reads || n == "rc", f.Takes || n == "rc" || n == "ud"
				f.Providers = append(f.Providers, c)
			}
		}
	}
	require.Len(t, f.Providers, len(names))
	return f
}

var (
	// losing is a link that loses, doubles, reorders and corrupts packets. Each loss
	// takes a time-out.
	losing = soft.Faults{Seed: 3, Loss: 0.002, Duplicate: 0.002, Reorder: 0.002, Corrupt: 0.002}
	// confusing is one that loses none, so that nothing waits for long.
	confusing = soft.Faults{Seed: 3, Duplicate: 0.01, Reorder: 0.01, Jitter: 20 * time.Microsecond}
)

// simulated makes the factory of a column over one transport, on devices of the
// software RNIC with a link of such faults.
func simulated(column string, modes []ucp.ThreadMode, faults soft.Faults, transport func(devices) uct.Component) Factory {
	sw := soft.NewSwitch()
	f := Factory{Column: column, Modes: modes, Env: impatient, Reads: column == "rc-sim", Takes: true, Lossy: faults.Loss > 0}
	f.Providers = []uct.Component{transport(func(_ *config.Set, log *zap.Logger) []verbs.Provider {
		return []verbs.Provider{soft.New(soft.Config{Link: soft.LinkInproc, Switch: sw, Faults: &faults, Log: log})}
	})}
	return f
}

// devices are those that a transport is handed.
type devices = func(*config.Set, *zap.Logger) []verbs.Provider

// overDevices are the transports over devices.
var overDevices = map[string]func(devices) uct.Component{
	"rc": func(ds devices) uct.Component { return rc.Component(ds) },
	"ud": func(ds devices) uct.Component { return ud.Component(ds) },
}

// factories are the columns. CI runs one for each transport, and under the race detector those
// that find races soonest: shm with one goroutine without it, and with two goroutines under it. make
// nightly runs all of them.
//
// Over a device each message costs more than in shared memory: outside of the long setting these
// have one of the modes each. Over a simulated link, where all packets are serialised, they have a
// part of the cases, and nothing is lost: only doubled and overtaken.
func factories(t *testing.T) []Factory {
	one, two := []ucp.ThreadMode{ucp.ThreadSingle}, []ucp.ThreadMode{ucp.ThreadMulti}
	if os.Getenv("GOUCX_TEST_LONG") != "" {
		one, two = nil, nil
	}
	var both []ucp.ThreadMode // nil
	onShm := both
	switch {
	case suitetest.All():
	case race.Enabled:
		both, onShm = two, two
	default:
		onShm = one
	}
	alone := over(t, "self", both, nil, "self")
	alone.Alone = true
	fs := []Factory{alone, over(t, "shm", onShm, nil, "shm")}
	switch {
	case suitetest.All():
	case race.Enabled:
		return append(fs, over(t, "rc-inproc", two, inproc, "rc"))
	default:
		return append(fs, over(t, "rc", one, loopback, "rc"), over(t, "ud", one, loopback, "ud"))
	}
	fs = append(fs,
		over(t, "rc-inproc", two, inproc, "rc"),
		over(t, "rc", one, loopback, "rc"),
		over(t, "ud", one, loopback, "ud"),
		over(t, "ud-inproc", two, inproc, "ud"),
		over(t, "rc+ud", one, inproc, "rc", "ud"),
		over(t, "shm+rc", one, loopback, "shm", "rc"),
	)
	faults, cases := losing, []Case(nil)
	if one != nil {
		faults, cases = confusing, transferCases()
	}
	sims := []Factory{
		simulated("rc-sim", one, faults, overDevices["rc"]),
		simulated("ud-sim", one, faults, overDevices["ud"]),
	}
	for i := range sims {
		sims[i].Cases = cases
	}
	return append(append(fs, sims...), split(t))
}

// split has memory over rc and messages over ud: fences order two connections to one
// peer.
func split(t *testing.T) Factory {
	f := over(t, "rc+ud", []ucp.ThreadMode{ucp.ThreadSingle}, inproc, "rc", "ud")
	for i, c := range f.Providers {
		if c.Name() == "rc" {
			f.Providers[i] = mute{c}
		}
	}
	f.Name, f.Cases = "rc for memory, ud for messages", slices.Concat(orderCases, rmaCases)
	f.Reads, f.FewAtomics = false, true
	return f
}

// mute is a transport without its active messages.
type mute struct{ uct.Component }

type (
	muteDomain struct{ uct.Domain }
	muteIface  struct {
		uct.Iface
		attr *uct.IfaceAttr
	}
)

func (m mute) OpenDomain(i uct.DomainInfo, c uct.DomainConfig) (uct.Domain, error) {
	d, err := m.Component.OpenDomain(i, c)
	return muteDomain{d}, err
}

func (m muteDomain) OpenIface(i uct.IfaceInfo, c uct.IfaceConfig) (uct.Iface, error) {
	f, err := m.Domain.OpenIface(i, c)
	if err != nil {
		return nil, err
	}
	a := *f.Attr()
	a.Ops &^= uct.OpsAM
	return muteIface{f, &a}, nil
}

func (m muteIface) Attr() *uct.IfaceAttr { return m.attr }

// transferCases are those that depend on the link most: what is transferred. Waiting,
// goroutines and ends are the layer's own.
func transferCases() []Case {
	return slices.Concat(tagCases, tagBulkCases, rndvCases, tagSyncCases, tagOracleCases, flushCases, rmaCases, amoCases, amCases, amRndvCases, orderCases)
}

// notThroughThreads are cases that say of a worker's own endpoints what does not hold for a Thread's.
var notThroughThreads = []string{
	"requests of every kind in one list",     // receives are the worker's, sends the Thread's:
	"a list whose operations fail",           // one list holds those of one
	"the peer aborts its last endpoint",      // a Thread's leaves the worker's open
	"am: a wait inside a handler is refused", // a Thread does not know that its goroutine runs a handler
}

// onSeveralGoroutines are cases whose goroutines, or handlers, use one endpoint.
var onSeveralGoroutines = []string{
	"46 many goroutines", "am: request and answer by turns",
	"am: handlers post, make and close endpoints, change handlers", "am: many goroutines ask, others answer",
}

// throughThreads are factories whose workers send through a Thread each. With two goroutines one drives
// the worker and the other the Thread.
func throughThreads(t *testing.T) (fs []Factory) {
	add := func(f Factory, policy string, mode ucp.ThreadMode, cases []Case) {
		p, err := sharing.Lookup(policy)
		require.NoError(t, err)
		f.Sharing, f.Name, f.Modes = &p, f.Column+", "+policy, []ucp.ThreadMode{mode}
		f.Cases = slices.DeleteFunc(slices.Clone(cases), func(c Case) bool {
			return policy != "mpi-threads" && (slices.Contains(notThroughThreads, c.Name) || mode == ucp.ThreadMulti && slices.Contains(onSeveralGoroutines, c.Name))
		})
		fs = append(fs, f)
	}
	shm, device := over(t, "shm", nil, nil, "shm"), over(t, "rc-inproc", nil, inproc, "rc")
	switch {
	case suitetest.All():
		add(shm, "mpi-threads", ucp.ThreadMulti, Cases())
		add(over(t, "rc", nil, loopback, "rc"), "dynamic", ucp.ThreadSingle, Cases())
		add(over(t, "ud", nil, loopback, "ud"), "dynamic", ucp.ThreadSingle, Cases())
		for _, p := range sharing.Policies() {
			if p.Name != "mpi-threads" {
				add(device, p.Name, ucp.ThreadSingle, Cases())
			}
		}
		add(shm, "dynamic", ucp.ThreadSingle, Cases())
		add(shm, "dynamic", ucp.ThreadMulti, Cases())
	case race.Enabled:
		add(shm, "dynamic", ucp.ThreadMulti, Cases())
	default:
		add(shm, "dynamic", ucp.ThreadSingle, Cases())
		add(device, "dynamic", ucp.ThreadSingle, transferCases())
	}
	return fs
}

// TestThreads runs the cases through Threads; matrix.txt says the same of them.
func TestThreads(t *testing.T) {
	for _, f := range throughThreads(t) {
		t.Run(f.Name, func(t *testing.T) { Run(t, f) })
	}
}

func TestUCP(t *testing.T) {
	for _, f := range factories(t) {
		t.Run(cmp.Or(f.Name, f.Column), func(t *testing.T) { Run(t, f) })
	}
}
