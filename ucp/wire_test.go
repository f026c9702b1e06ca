package ucp

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// recorder keeps the messages that are sent through it.
type recorder struct {
	uct.Endpoint
	sent []packet
	open packet
}

func (r *recorder) AMShort(id uct.AMID, hdr uint64, p []byte) uct.Status {
	r.sent = append(r.sent, packet{id: id, hdr: hdr, data: append([]byte(nil), p...)})
	return ucs.OK
}

func (r *recorder) ReserveAM(id uct.AMID, hdr uint64, n int) ([]byte, uct.Status) {
	r.open = packet{id: id, hdr: hdr, data: make([]byte, n)}
	return r.open.data, ucs.OK
}

func (r *recorder) CommitAM(n int) {
	r.open.data = r.open.data[:n]
	r.sent = append(r.sent, r.open)
}

// record gives an endpoint whose messages hold 16 bytes and are recorded.
func record(t *testing.T) (*workerIface, *recorder, Endpoint) {
	t.Helper()
	wi := newPort(t)
	e, err := wi.worker().NewEndpoint(wi.worker().Address(), EndpointConfig{Eager: true})
	require.NoError(t, err)
	l := &wi.t.lanes[wi.t.eps[1].lane]
	r := &recorder{Endpoint: l.ep}
	l.ep, l.maxShort, l.amShort, l.ifaceMaxShort, l.maxBcopy = r, 16, 16, 16, 16
	return wi, r, e
}

// The example of docs/wire/ucp.md.
func TestWireGolden(t *testing.T) {
	_, r, e := record(t)
	require.Zero(t, e.TagSend(make([]byte, 17), 1), "the first message in fragments")
	r.sent = nil
	require.Zero(t, e.TagSend([]byte("hello, world, again"), 0x1234))
	require.Len(t, r.sent, 2)
	for i, want := range []struct {
		id      uct.AMID
		header  uint64
		payload string
	}{
		{2, 0x1234, "1300000000000000" + "68656c6c6f2c2077"},
		{3, 2, "6f726c642c20616761696e"},
	} {
		assert.Equal(t, want.id, r.sent[i].id)
		assert.Equal(t, want.header, r.sent[i].hdr)
		assert.Equal(t, want.payload, hex.EncodeToString(r.sent[i].data))
	}

	r.sent = nil
	require.Zero(t, e.TagSendV([][]byte{[]byte("ab"), nil, []byte("c")}, 7))
	assert.Equal(t, []packet{{id: 1, hdr: 7, data: []byte("abc")}}, r.sent)
}

// The abort in the examples of docs/wire/ucp.md.
func TestAbortGolden(t *testing.T) {
	wi, r, e := record(t)
	rts := e.TagSendWith([]byte("data"), 1, Opts{Flags: ForceRendezvous})
	r.sent = nil
	e.Abort(errors.New("disk full"))
	assert.Equal(t, []packet{
		{id: 19, hdr: 0, data: []byte("\x03disk full")},
		{id: 19, hdr: rts.id, data: []byte("\x00disk full")},
	}, r.sent)
	require.ErrorIs(t, rts.Err(), ErrCanceled)

	other, err := wi.worker().NewEndpoint(wi.worker().Address(), EndpointConfig{Eager: true})
	require.NoError(t, err)
	last, err := wi.worker().NewEndpoint(wi.worker().Address(), EndpointConfig{})
	require.NoError(t, err)
	l := &wi.t.lanes[wi.t.eps[wi.t.endpoint(other)].lane]
	l.ep, l.maxShort, l.ifaceMaxShort, l.maxBcopy = r, 16, 16, 16
	r.sent = nil
	other.Abort(nil)
	assert.Empty(t, r.sent, "another endpoint to the peer is open")
	last.Abort(nil)
	assert.Empty(t, r.sent, "it was never used, and the peer has not connected")
}

// A text of any bytes is cut between characters.
func TestAbortText(t *testing.T) {
	for cause, want := range map[string]string{
		"":                             "",
		"short":                        "short",
		strings.Repeat("a", 200):       strings.Repeat("a", 200),
		strings.Repeat("a", 201):       strings.Repeat("a", 200),
		"a" + strings.Repeat("ä", 100): "a" + strings.Repeat("ä", 99),
		"bad \xff byte":                "bad ? byte",
	} {
		assert.Equal(t, want, newAbortNotice(errors.New(cause)).text)
	}
	assert.Empty(t, newAbortNotice(nil).text)
}

// What is sent in pieces of any size is received whole.
func TestWireRoundTrip(t *testing.T) {
	wi, r, e := record(t)
	for n := range 100 {
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(i + n)
		}
		r.sent = nil
		half := n / 3
		require.Zero(t, e.TagSendV([][]byte{want[:half], want[half:]}, 9))
		for i := range r.sent {
			r.sent[i].src = 4
		}
		got := make([]byte, n)
		if n%2 == 0 {
			deliver(wi, r.sent...)
		}
		q := wi.worker().TagRecv(got, 9, ^Tag(0))
		if n%2 == 1 {
			deliver(wi, r.sent...)
		}
		m, err := q.Wait(context.Background())
		require.NoError(t, err)
		require.Equal(t, Message{9, n}, m)
		require.Equal(t, want, got)
	}
}
