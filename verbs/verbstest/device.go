package verbstest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

var deviceCases = []testCase{
	{"attributes", 0, deviceAttributes},
	{"port", 0, devicePort},
	{"gid", 0, deviceGID},
	{"pkey", 0, devicePKey},
	{"busy", 0, deviceBusy},
	{"independent", 0, deviceIndependent},
}

// deviceAttributes: limits are there and make sense.
func deviceAttributes(e *env) {
	for _, s := range e.sides {
		a := s.Attr()
		for name, v := range map[string]int{
			"QP": a.MaxQP, "QPWR": a.MaxQPWR, "SGE": a.MaxSGE, "CQ": a.MaxCQ, "CQE": a.MaxCQE, "MR": a.MaxMR, "PD": a.MaxPD,
			"AH": a.MaxAH, "SRQ": a.MaxSRQ, "SRQWR": a.MaxSRQWR, "SRQSGE": a.MaxSRQSGE, "rd atomic": a.MaxQPRdAtomic,
			"init rd atomic": a.MaxQPInitRdAtomic, "ports": a.Ports, "message": int(a.MaxMessage),
		} {
			assert.Positive(e, v, name)
		}
		assert.LessOrEqual(e, a.MaxSGE, verbs.MaxSGE)
		assert.NotZero(e, a.MaxMRSize)
		assert.NotEmpty(e, s.Info().Name)
		assert.NotEmpty(e, s.Info().Provider)
		assert.NotNil(e, s.Stats())
	}
}

// devicePort: port 1 is active, others than those there are refused.
func devicePort(e *env) {
	s := e.sides[0]
	require.Equal(e, verbs.PortActive.String(), s.port.State.String())
	require.NotZero(e, s.port.ActiveMTU.Bytes())
	require.GreaterOrEqual(e, s.port.MaxMTU, s.port.ActiveMTU)
	require.LessOrEqual(e, s.port.MaxMTU, verbs.MTU4096)
	if s.port.LongMTU != 0 {
		require.Greater(e, s.port.LongMTU, s.port.ActiveMTU)
		require.NotZero(e, s.port.LongMTU.Bytes())
	}
	require.Positive(e, s.port.GIDs)
	require.Positive(e, s.port.PKeys)
	for _, n := range []uint8{0, uint8(s.Attr().Ports + 1), 255} {
		_, err := s.Port(n)
		e.refused(err, "port %d", n)
	}
}

func deviceGID(e *env) {
	s := e.sides[0]
	for i := range s.port.GIDs {
		_, err := s.GID(1, i)
		require.NoError(e, err, "gid %d", i)
	}
	require.NotEqual(e, verbs.GID{}, s.gid)
	for _, i := range []int{-1, s.port.GIDs, 1 << 20} {
		_, err := s.GID(1, i)
		e.refused(err, "gid %d", i)
	}
	_, err := s.GID(0, 0)
	e.refused(err, "gid of port 0")
}

func devicePKey(e *env) {
	s := e.sides[0]
	k, err := s.PKey(1, 0)
	require.NoError(e, err)
	require.NotZero(e, k&0x7fff, "the default partition")
	for _, i := range []int{-1, s.port.PKeys, 1 << 20} {
		_, err := s.PKey(1, i)
		e.refused(err, "pkey %d", i)
	}
	_, err = s.PKey(0, 0)
	e.refused(err, "pkey of port 0")
}

// deviceBusy: a device with anything on it cannot be closed, and goes on.
func deviceBusy(e *env) {
	s := e.sides[0]
	e.busy(s.Close(), "device with domains")
	d := e.rc(nil)
	e.busy(s.Close(), "device with queue pairs")
	d.a.send(request(1, verbs.OpWrite))
	d.a.sent(1)
}

// deviceIndependent: numbers of one device mean nothing on the other.
func deviceIndependent(e *env) {
	d := e.rc(nil)
	a, b := e.sides[0], e.sides[1]
	if !e.fixture.Traits.OneDevice {
		require.NotEqual(e, a.address(a), a.address(b))
	}
	d.a.send(at(request(1, verbs.OpWrite, d.am.sge(0, 8)), d.am, 0)) // the own key, not the peer's
	d.a.sentAs(1, verbs.WCRemAccessErr)
}
