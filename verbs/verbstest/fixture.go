package verbstest

import (
	"testing"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Needs are abilities of a fixture, which a case may need.
type Needs uint8

// Abilities.
const (
	// Packets: the fabric shows each packet to a filter (Fabric.Filter).
	Packets Needs = 1 << iota
	// Forgery: made-up packets can be sent (Fabric.Inject).
	Forgery
	// Threads: several goroutines may use the devices at once.
	Threads
	// Background: a device works without polls.
	Background
)

var lacks = []struct {
	need   Needs
	reason string
}{
	{Packets, "packets cannot be seen"},
	{Forgery, "packets cannot be forged"},
	{Threads, "one goroutine drives the devices"},
	{Background, "a device works only when polled"},
}

// Traits are ways in which devices may differ; zero is what hardware does.
type Traits struct {
	// AtomicsCheckedAtPost: an atomic to a misaligned address is refused by the post
	// instead of failing.
	AtomicsCheckedAtPost bool
	// OversizeDatagramsVanish: a datagram longer than the MTU ends well and is not
	// sent, instead of failing with WCLocLenErr.
	OversizeDatagramsVanish bool
	// ShortReceiveIsOpErr: a datagram that is longer than its receive fails it with
	// WCLocQPOpErr instead of WCLocLenErr.
	ShortReceiveIsOpErr bool
	// NoCommEst: EventCommEst does not come.
	NoCommEst bool
	// NoAccessEvents: a refused request raises no event at the responder.
	NoAccessEvents bool
	// OneDevice: both contexts are of one device, so they have the same GID.
	OneDevice bool
}

// Fixture says what is tested.
type Fixture struct {
	// Name is the column of matrix.txt.
	Name string
	// Can are the abilities of the fabrics that Open makes.
	Can    Needs
	Traits Traits
	// ThreadDomains has each queue pair in a thread domain of its own, in cases that do not need
	// Threads.
	ThreadDomains bool
	// Deviations lists the cases that a device of another maker, or its kernel, does not pass; it
	// stands in place of a column of matrix.txt. Each line is "case fails|n/a kernel reason".
	Deviations string
	// Kernel is the release of the running kernel, for Deviations.
	Kernel string
	// Open makes a fabric of its own for a case, whose needs it may rely on:
	// without Packets no filter is set. What it opened beside the devices goes with
	// t's cleanup.
	Open func(t testing.TB, needs Needs) *Fabric
}

// Fabric is two open devices that reach each other through port 1 and the first
// GID. The case closes them.
//
// Concurrency: the suite calls its functions from one goroutine.
type Fabric struct {
	Devices [2]verbs.Context
	// Filter has f decide on every packet from now on; it may be called from any
	// goroutine. nil f: all pass.
	Filter func(f func(Packet) Verdict)
	// Inject sends device to the packet b, from the BTH to the padding.
	Inject func(to int, b []byte, m Manner)
	// Now reads the fabric's clock; nil: it is ucs.Now.
	Now func() ucs.Time
	// Advance moves a simulated clock on and has happen what is due by then; nil:
	// time passes by itself.
	Advance func(d time.Duration)
}

// Packet is a packet on its way. It is valid during the call.
type Packet struct {
	// From is the number of the sending device.
	From int
	wire.Packet
}

// Verdict is what happens to a packet; zero: it passes.
type Verdict struct {
	Drop bool
	// Copies more follow at once.
	Copies int
	// Corrupt: one bit of it is turned, so that the ICRC is wrong.
	Corrupt bool
	// Delay is how much later it arrives; others may pass it by.
	Delay time.Duration
}

// Manner is how a made-up packet is sent.
type Manner uint8

// Manners.
const (
	// Genuine: as if by the other device, with a right ICRC.
	Genuine Manner = iota
	// Spoofed: from another address, with the ICRC of that address.
	Spoofed
	// Damaged: as if by the other device, with a wrong ICRC.
	Damaged
)

// testCase is one property of the specification.
type testCase struct {
	name  string
	needs Needs
	run   func(*env)
}

// themes are the cases in the order in which they run. Together with the theme's
// name they are the rows of matrix.txt.
var themes = []struct {
	name  string
	cases []testCase
}{
	{"device", deviceCases},
	{"object", objectCases},
	{"memory", memoryCases},
	{"window", windowCases},
	{"state", stateCases},
	{"post", postCases},
	{"data", dataCases},
	{"completion", completionCases},
	{"queue", queueCases},
	{"event", eventCases},
	{"atomic", atomicCases},
	{"protection", protectionCases},
	{"retry", retryCases},
	{"loss", lossCases},
	{"forgery", forgeryCases},
	{"datagram", datagramCases},
	{"multicast", multicastCases},
	{"unreliable", unreliableCases},
	{"srq", srqCases},
	{"async", asyncCases},
	{"thread", threadCases},
}

// Run holds a device to the specification: every case as a subtest theme/case.
// The outcomes must be those of the fixture's column in matrix.txt.
func Run(t *testing.T, f Fixture) {
	m := f.matrix(t)
	for _, th := range themes {
		t.Run(th.name, func(t *testing.T) {
			for _, c := range th.cases {
				t.Run(c.name, func(t *testing.T) {
					if why := m.Known(f.Name, th.name+"/"+c.name); why != "" {
						f.fails(t, c, why)
						return
					}
					e := &env{TB: t, fixture: f, patience: patience}
					defer func() { m.Compare(t, f.Name, th.name+"/"+c.name, e.reason) }()
					e.run(c)
				})
			}
		})
	}
}

// fails runs a case that is listed as failing; that it passes is a fault of the
// list.
func (f Fixture) fails(t *testing.T, c testCase, why string) {
	r, _ := f.try(t, c, faultPatience)
	if !r.Failed() {
		t.Errorf("matrix.txt lists it as failing (%s), but it passes", why)
	}
	t.Skip("known to fail: " + why)
}
