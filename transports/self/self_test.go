package self

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// sink is a handler that counts.
type sink struct {
	messages int
	last     uct.Desc
	failures []uct.Failure
	pending  func([]uct.Token) int
	message  func(uct.Desc)
}

func (s *sink) HandleEvents([]uct.Event) {}

func (s *sink) HandleAM(_ []byte, ds []uct.Desc) uint64 {
	s.messages += len(ds)
	s.last = ds[len(ds)-1]
	if s.message != nil {
		for _, d := range ds {
			s.message(d)
		}
	}
	return 0
}

func (s *sink) HandlePending(ts []uct.Token) int { return s.pending(ts) }

func (s *sink) HandleFailure(f uct.Failure) { s.failures = append(s.failures, f) }

// open gives an iface, its only endpoint and what it hands to the handler.
func open(t testing.TB, set *config.Set) (uct.Iface, uct.Endpoint, *sink) {
	c := Component()
	infos, refused := c.Domains(set)
	require.Empty(t, refused)
	require.Len(t, infos, 1)
	d, err := c.OpenDomain(infos[0], uct.DomainConfig{Settings: set})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	ifaces, refused := d.Ifaces()
	require.Empty(t, refused)
	require.Equal(t, []uct.IfaceInfo{{Transport: "self", ID: uct.TransportSelf, Device: "memory0", Kind: uct.DeviceSelf}}, ifaces)
	s := &sink{pending: func(ts []uct.Token) int { return len(ts) }}
	i, err := d.OpenIface(ifaces[0], uct.IfaceConfig{Handler: s, Worker: uct.UUID{1}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, i.Close()) })
	e, err := i.NewEndpoint(uct.Address{Iface: i.Address(nil)})
	require.NoError(t, err)
	return i, e, s
}

func TestOpenRefusesBadArguments(t *testing.T) {
	c := Component()
	require.Equal(t, "self", c.Name())
	_, err := c.OpenDomain(uct.DomainInfo{Component: "shm", Name: "self"}, uct.DomainConfig{})
	require.ErrorIs(t, err, ucs.ErrInvalid)
	d, err := c.OpenDomain(uct.DomainInfo{Component: "self", Name: "self"}, uct.DomainConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	infos, _ := d.Ifaces()
	good := uct.IfaceConfig{Handler: &sink{}, Worker: uct.UUID{1}}
	for name, bad := range map[string]func(*uct.IfaceInfo, *uct.IfaceConfig){
		"transport": func(i *uct.IfaceInfo, _ *uct.IfaceConfig) { i.Transport = "shm" },
		"device":    func(i *uct.IfaceInfo, _ *uct.IfaceConfig) { i.Device = "memory" },
		"handler":   func(_ *uct.IfaceInfo, c *uct.IfaceConfig) { c.Handler = nil },
		"worker":    func(_ *uct.IfaceInfo, c *uct.IfaceConfig) { c.Worker = uct.UUID{} },
	} {
		info, conf := infos[0], good
		bad(&info, &conf)
		_, err := d.OpenIface(info, conf)
		assert.ErrorIs(t, err, ucs.ErrInvalid, name)
	}
}

// TestSettings: the message length and the queue's length are settings.
func TestSettings(t *testing.T) {
	set, _, err := config.Load(config.Options{
		Env: []string{"UCX_SELF_SEG_SIZE=100", "UCX_SELF_FIFO_SIZE=3"}, Dirs: []string{},
	}, settings)
	require.NoError(t, err)
	i, e, s := open(t, set)
	require.Equal(t, uct.Limit{Short: 100, Bcopy: 100, MaxZcopy: 100, MaxVec: maxVec, MaxHeader: maxHeader}, i.Attr().AM)
	for range 4 {
		require.Equal(t, ucs.OK, e.AMUint64(0, 0, 0))
	}
	require.Equal(t, ucs.NoResource, e.AMUint64(0, 0, 0), "three rounded up to four")
	require.Equal(t, 4, i.Progress(10))
	require.Equal(t, 4, s.messages)
}

// TestEndOfConnectionIsReported: a closed endpoint's number is reported once,
// after its last message; one that never sent has no number to report.
func TestEndOfConnectionIsReported(t *testing.T) {
	i, e, s := open(t, nil)
	unused, err := i.NewEndpoint(uct.Address{Iface: i.Address(nil)})
	require.NoError(t, err)
	require.Equal(t, ucs.OK, e.AMUint64(0, 0, 0))
	unused.Close()
	e.Close()
	s.message = func(uct.Desc) { require.Empty(t, s.failures) }
	require.Equal(t, 2, i.Progress(1), "the message and the failure")
	require.Zero(t, i.Progress(1))
	require.Equal(t, []uct.Failure{{RxConn: s.last.RxConn}}, s.failures)
	require.Empty(t, i.(*iface).eps)
}

// TestOnlyItself: no other iface is reached, of the same worker neither.
func TestOnlyItself(t *testing.T) {
	a, _, _ := open(t, nil)
	b, _, _ := open(t, nil)
	ok, reason := a.Reachable(uct.Address{Iface: b.Address(nil)})
	require.False(t, ok)
	require.Contains(t, reason, "its own worker")
	ok, _ = a.Reachable(uct.Address{Device: []byte{0}, Iface: a.Address(nil)})
	require.False(t, ok)
	_, err := a.NewEndpoint(uct.Address{Iface: b.Address(nil)})
	require.ErrorIs(t, err, ucs.ErrUnreachable)
}

// TestForeignKey: keys are valid in their own domain alone.
func TestForeignKey(t *testing.T) {
	a, _, _ := open(t, nil)
	b, _, _ := open(t, nil)
	m, err := a.(*iface).dom.Allocate(100, uct.MemRemote)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	_, err = b.(*iface).dom.UnpackKey(m.AppendKey(nil))
	require.ErrorIs(t, err, ucs.ErrUnreachable)
}

// TestGateSizes: an endpoint that never sent holds no queue.
func TestGateSizes(t *testing.T) {
	_, e, _ := open(t, nil)
	require.Nil(t, e.(*endpoint).q.mem)
	require.LessOrEqual(t, reflect.TypeFor[endpoint]().Size(), uintptr(320))
}

// BenchmarkAMShort sends and delivers 8 bytes at a time.
func BenchmarkAMShort(b *testing.B) {
	i, e, _ := open(b, nil)
	p := make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		if e.AMShort(1, 2, p) != ucs.OK {
			b.Fatal("no resource")
		}
		i.Progress(64)
	}
}

// BenchmarkAMStream delivers in batches of 64.
func BenchmarkAMStream(b *testing.B) {
	i, e, _ := open(b, nil)
	p := make([]byte, 8)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if e.AMShort(1, 2, p) != ucs.OK {
			b.Fatal("no resource")
		}
		if n++; n%64 == 0 {
			i.Progress(64)
		}
	}
}

// BenchmarkIdle is a Progress with nothing to do.
func BenchmarkIdle(b *testing.B) {
	i, _, _ := open(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		i.Progress(64)
	}
}

// TestClosedEndpointsComeFirst: an endpoint that is used after the Close of another
// delivers nothing before the other's last message, however small the budget.
func TestClosedEndpointsComeFirst(t *testing.T) {
	const each = 100
	i, first, s := open(t, nil)
	var got []uint64
	s.message = func(d uct.Desc) { got = append(got, d.Header) }
	var es []uct.Endpoint
	for range 3 { // made beforehand, so that the order is not that of making
		e, err := i.NewEndpoint(uct.Address{Iface: i.Address(nil)})
		require.NoError(t, err)
		es = append(es, e)
	}
	es = []uct.Endpoint{es[2], first, es[0], es[1]}
	for k, e := range es {
		for m := range each {
			require.Equal(t, ucs.OK, e.AMUint64(1, uint64(k*each+m), 0))
		}
		if k < len(es)-1 {
			e.Close()
		}
	}
	for len(got) < len(es)*each {
		i.Progress(64)
	}
	require.IsIncreasing(t, got)
	require.Len(t, s.failures, len(es)-1)
}
