package objects

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestDomains: a domain is closed after its objects, a thread domain after its parent domains, and
// the device after all of them. A second Close does nothing.
func TestDomains(t *testing.T) {
	var device Counts
	var thread Uses
	var p, parent Domain
	require.NoError(t, p.Alloc(&device, 1))
	require.ErrorIs(t, (&Domain{}).Alloc(&device, 1), ucs.ErrNoResource)
	require.ErrorIs(t, parent.AllocParent(&p, &thread, 1), ucs.ErrNoResource)
	require.NoError(t, thread.CheckUnused("parent domains"), "a refused domain does not use its thread domain")
	require.NoError(t, parent.AllocParent(&p, &thread, 2))
	require.NoError(t, parent.Admit(QP, 1))
	assert.True(t, parent.IsParent() && parent.Single())
	assert.False(t, p.IsParent() || p.Single())

	_, err := device.Close()
	require.ErrorIs(t, err, ucs.ErrBusy)
	require.ErrorContains(t, err, "2 of its objects (pd)")
	require.ErrorIs(t, p.Close(nil), ucs.ErrBusy)
	require.ErrorIs(t, parent.Close(nil), ucs.ErrBusy)
	_, err = thread.Close("parent domains")
	require.ErrorContains(t, err, "1 parent domains use it")

	parent.Release(QP)
	broken := errors.New("broken")
	require.ErrorIs(t, parent.Close(func() error { return broken }), broken, "a domain that cannot be freed is open")
	require.NoError(t, parent.Close(nil))
	require.NoError(t, parent.Close(func() error { return broken }))
	require.ErrorIs(t, parent.Admit(QP, 1), ucs.ErrClosed)
	first, err := thread.Close("parent domains")
	require.True(t, first && err == nil)
	first, err = thread.Close("parent domains")
	require.True(t, !first && err == nil)
	require.ErrorIs(t, (&Domain{}).AllocParent(&p, &thread, 9), ucs.ErrClosed)
	require.NoError(t, p.Close(nil))
	first, err = device.Close()
	require.True(t, first && err == nil)
	require.ErrorIs(t, device.Admit(CQ, 0), ucs.ErrClosed)
	assert.True(t, device.Closed())
	assert.Zero(t, device.Open())
}

// queue is a queue of device number on.
type queue struct {
	on   int
	uses Uses
}

func (q *queue) MadeBy() int    { return q.on }
func (q *queue) Account() *Uses { return &q.uses }

// TestQueuesOf: the queues of a queue pair are open ones of its device, and its sizes are within
// the limits.
func TestQueuesOf(t *testing.T) {
	most := &verbs.DeviceAttr{MaxQPWR: 8, MaxSGE: 4, MaxInline: 64}
	own, other := &queue{on: 1}, &queue{on: 2}
	for _, c := range []struct {
		config verbs.QPConfig
		text   string
	}{
		{verbs.QPConfig{Type: 9}, "type 9"},
		{verbs.QPConfig{Type: verbs.RC}, "no send CQ"},
		{verbs.QPConfig{Type: verbs.RC, Caps: verbs.QPCaps{MaxSend: 9}}, "MaxSend 9, want 0 to 8"},
		{verbs.QPConfig{Type: verbs.UC, Caps: verbs.QPCaps{MaxRecvSGE: -1}}, "MaxRecvSGE -1, want 0 to 4"},
		{verbs.QPConfig{Type: verbs.UD, Caps: verbs.QPCaps{MaxInline: 65}}, "MaxInline 65, want 0 to 64"},
	} {
		if c.text != "no send CQ" {
			c.config.SendCQ, c.config.RecvCQ = asCQ{queue: own}, asCQ{queue: own}
		}
		_, err := QueuesOf[asCQ, asSRQ](1, most, &c.config)
		require.ErrorIs(t, err, ucs.ErrInvalid)
		require.ErrorContains(t, err, c.text)
	}
	_, err := QueuesOf[asCQ, asSRQ](1, most, &verbs.QPConfig{Type: verbs.RC, SendCQ: asCQ{queue: own}, RecvCQ: asCQ{queue: other}})
	require.ErrorContains(t, err, "receive CQ of another device")

	c := verbs.QPConfig{Type: verbs.RC, SendCQ: asCQ{queue: own}, RecvCQ: asCQ{queue: own}, SRQ: asSRQ{queue: own}, Caps: verbs.QPCaps{MaxRecv: 99}}
	q, err := QueuesOf[asCQ, asSRQ](1, most, &c)
	require.NoError(t, err, "an SRQ has its own sizes")
	require.Zero(t, c.Caps.MaxRecv)
	q.Add()
	require.ErrorContains(t, own.uses.CheckUnused("ends"), "3 ends use it")
	q.Release()
	require.NoError(t, q.CheckOpen())
	_, err = own.uses.Close("ends")
	require.NoError(t, err)
	require.ErrorIs(t, q.CheckOpen(), ucs.ErrClosed)
}

// asCQ and asSRQ make a queue what the API calls so.
type (
	asCQ struct {
		*queue
		verbs.CQ
	}
	asSRQ struct {
		*queue
		verbs.SRQ
	}
)
