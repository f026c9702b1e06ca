//go:build linux

package test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// heirs is how many successors everything gets before it is used again: slots go
// to the next who asks, so each of them has the place of the one before.
const heirs = 100

// afterlife is a worker, and another that it reaches over shm, or itself.
type afterlife struct {
	*node
	t     *testing.T
	ctx   context.Context
	other *node
	peer  ucp.Address
	e     ucp.Endpoint
	mem   *ucp.MemHandle // the peer's
}

// TestUseAfterEnd: what has ended answers what the documents say, and never for
// the one that has its place now.
func TestUseAfterEnd(t *testing.T) {
	for name, use := range map[string]func(*afterlife){
		"request":            (*afterlife).request,
		"failed request":     (*afterlife).failedRequest,
		"receive":            (*afterlife).receive,
		"cancelled receive":  (*afterlife).cancelledReceive,
		"taken message":      (*afterlife).taken,
		"kept message":       (*afterlife).kept,
		"endpoint":           (*afterlife).endpoint,
		"key":                (*afterlife).key,
		"key of an endpoint": (*afterlife).keyOfEndpoint,
		"memory":             (*afterlife).memory,
		"worker":             (*afterlife).worker,
		"context":            (*afterlife).context,
	} {
		for mode, m := range map[string]ucp.ThreadMode{"single": ucp.ThreadSingle, "multi": ucp.ThreadMulti} {
			for _, far := range []bool{false, true} {
				t.Run(name+"/"+mode+"/"+map[bool]string{false: "self", true: "shm"}[far], func(t *testing.T) {
					use(newAfterlife(t, m, far))
				})
			}
		}
	}
}

func newAfterlife(t *testing.T, mode ucp.ThreadMode, far bool) *afterlife {
	a := &afterlife{node: open(t, mode), t: t, ctx: bounded(t)}
	a.other = a.node
	if far {
		a.other = open(t, mode)
	}
	a.peer = a.other.w.Address()
	a.e = a.newEndpoint()
	var err error
	a.mem, err = a.other.x.Allocate(4096, ucp.MemConfig{})
	require.NoError(t, err)
	return a
}

func (a *afterlife) newEndpoint() ucp.Endpoint {
	e, err := a.w.NewEndpoint(a.peer, ucp.EndpointConfig{})
	require.NoError(a.t, err)
	return e
}

// drive progresses both sides until r has ended.
func (a *afterlife) drive(r ucp.Request) {
	until(a.t, r.Done, func() int { return a.w.Progress() + a.other.w.Progress() })
}

// arrive drives until n messages of a tag have come to the peer without a receive.
func (a *afterlife) arrive(tag ucp.Tag) {
	until(a.t, func() bool { _, ok := a.other.w.TagProbe(tag, allBits); return ok },
		func() int { return a.w.Progress() + a.other.w.Progress() })
}

// request: one that ended well goes on to say so, and cancels nobody else.
func (a *afterlife) request() {
	t := a.t
	old := a.e.TagSendSync([]byte("first"), 1)
	r := a.other.w.TagRecv(make([]byte, 8), 1, allBits)
	a.drive(old)
	a.drive(r.Request)
	require.NoError(t, old.Wait(a.ctx))
	for range heirs {
		heir := a.e.TagSendSync([]byte("heir"), 2) // waits for its receive
		require.False(t, heir.Done())
		require.True(t, old.Done(), "%s", old)
		require.NoError(t, old.Err())
		require.NoError(t, old.Wait(a.ctx))
		require.False(t, old.Notify(func(ucp.Completion) { t.Error("it has ended") }, 1))
		old.Cancel()
		require.NoError(t, old.Finish(a.ctx))
		require.False(t, heir.Done(), "it was meant for its ancestor")
		got := a.other.w.TagRecv(make([]byte, 8), 2, allBits)
		a.drive(heir)
		require.NoError(t, heir.Wait(a.ctx))
		_, err := got.Wait(a.ctx)
		require.NoError(t, err)
	}
}

// failedRequest: one that failed never takes the success of its heir for its own
// while its error is kept, and never an error that is not its own.
func (a *afterlife) failedRequest() {
	t := a.t
	e, cause := a.newEndpoint(), errors.New("the ancestor's")
	old := e.TagSendSync([]byte("first"), 3)
	a.arrive(3)
	e.Abort(cause)
	require.True(t, old.Done())
	for range heirs {
		if err := old.Err(); err != nil {
			require.ErrorIs(t, err, ucp.ErrCanceled)
			require.ErrorIs(t, err, cause)
		}
		e, heirs := a.newEndpoint(), errors.New("the heir's")
		heir := e.TagSendSync([]byte("heir"), 4)
		e.Abort(heirs)
		require.ErrorIs(t, heir.Err(), heirs)
		require.NotErrorIs(t, old.Err(), heirs)
	}
}

// receive: a result is read once, however many receives have had the place since.
func (a *afterlife) receive() {
	t := a.t
	old := a.other.w.TagRecv(make([]byte, 8), 5, allBits)
	require.NoError(t, a.e.TagSendUint64(5, 5).Wait(a.ctx))
	a.drive(old.Request)
	m, err := old.Wait(a.ctx)
	require.NoError(t, err)
	require.Equal(t, ucp.Message{Tag: 5, Len: 8}, m)
	for i := range uint64(heirs) {
		buf := make([]byte, 8)
		heir := a.other.w.TagRecv(buf, 6, allBits)
		a.requireStale(old)
		old.Cancel()
		old.Drop()
		_, err := old.Tie(a.e).Finish(a.ctx)
		require.ErrorIs(t, err, ucp.ErrStale)
		require.False(t, heir.Done(), "it was meant for its ancestor")
		require.NoError(t, a.e.TagSendUint64(i, 6).Wait(a.ctx))
		a.drive(heir.Request)
		a.requireStale(old)
		m, err := heir.Wait(a.ctx)
		require.NoError(t, err)
		require.Equal(t, ucp.Message{Tag: 6, Len: 8}, m)
		require.EqualValues(t, i, buf[0])
	}
}

func (a *afterlife) requireStale(r ucp.RecvRequest) {
	a.t.Helper()
	m, err := r.Wait(a.ctx)
	require.ErrorIs(a.t, err, ucp.ErrStale)
	require.Zero(a.t, m)
}

// cancelledReceive: its buffer gets nothing any more.
func (a *afterlife) cancelledReceive() {
	t := a.t
	for i := range uint64(heirs) {
		buf, heirs := make([]byte, 8), make([]byte, 8)
		old := a.other.w.TagRecv(buf, 7, allBits)
		old.Cancel()
		_, err := old.Wait(a.ctx)
		require.ErrorIs(t, err, ucp.ErrCanceled)
		heir := a.other.w.TagRecv(heirs, 7, allBits)
		a.requireStale(old)
		require.NoError(t, a.e.TagSendUint64(i+1, 7).Wait(a.ctx))
		a.drive(heir.Request)
		_, err = heir.Wait(a.ctx)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 8), buf)
		require.EqualValues(t, i+1, heirs[0])
	}
}

func (a *afterlife) taken() {
	t := a.t
	take := func(tag ucp.Tag) ucp.MatchedMessage {
		require.NoError(t, a.e.TagSendUint64(uint64(tag), tag).Wait(a.ctx))
		a.arrive(tag)
		k, ok := a.other.w.TagMprobe(tag, allBits)
		require.True(t, ok)
		return k
	}
	old := take(8)
	_, err := old.Recv(make([]byte, 8)).Wait(a.ctx)
	require.NoError(t, err)
	for range heirs {
		heir, buf := take(9), make([]byte, 8)
		a.requireStale(old.Recv(buf))
		old.Drop()
		require.Equal(t, make([]byte, 8), buf)
		m, err := heir.Recv(buf).Wait(a.ctx)
		require.NoError(t, err)
		require.EqualValues(t, 9, m.Tag)
		require.EqualValues(t, 9, buf[0])
	}
}

func (a *afterlife) kept() {
	t := a.t
	var last ucp.RetainedAM
	require.NoError(t, a.other.w.HandleAM(1, func(m *ucp.AM) { last = m.Retain() }))
	keep := func(s string) ucp.RetainedAM {
		last = ucp.RetainedAM{}
		require.NoError(t, a.e.AMSend(1, []byte("head"), []byte(s)).Wait(a.ctx))
		until(t, func() bool { return last != ucp.RetainedAM{} }, func() int { return a.w.Progress() + a.other.w.Progress() })
		return last
	}
	old := keep("first")
	old.Release()
	a.other.w.Progress()
	for range heirs {
		heir := keep("heir")
		require.Nil(t, old.Bytes())
		require.Nil(t, old.Header())
		require.Zero(t, old.Len())
		old.Release()
		old.Refuse(errors.New("no"))
		buf := make([]byte, 8)
		a.requireStale(old.RecvInto(buf))
		require.Equal(t, make([]byte, 8), buf)
		require.Equal(t, "heir", string(heir.Bytes()))
		require.Equal(t, "head", string(heir.Header()))
		heir.Release()
		a.other.w.Progress()
	}
}

// endpoint: a closed one answers ErrClosed, whoever has its place.
func (a *afterlife) endpoint() {
	t := a.t
	old := a.newEndpoint()
	require.NoError(t, old.TagSendUint64(1, 10).Wait(a.ctx))
	a.arrive(10)
	a.closing(old.Close)
	for range heirs {
		heir := a.newEndpoint()
		a.requireClosed(old)
		require.NoError(t, old.Close())
		old.Abort(errors.New("not the heir"))
		require.NoError(t, heir.TagSendUint64(2, 11).Wait(a.ctx))
		require.NoError(t, heir.Info().Err)
		a.closing(heir.Close)
	}
	_, ok := a.other.w.TagProbe(12, allBits)
	require.False(t, ok, "what was sent over a closed endpoint")
}

// closing calls a Close that may need the other side's progress.
func (a *afterlife) closing(closeIt func() error) {
	for range 100 {
		a.w.Progress()
		a.other.w.Progress()
	}
	require.NoError(a.t, closeIt())
}

func (a *afterlife) requireClosed(e ucp.Endpoint) {
	t := a.t
	t.Helper()
	p := make([]byte, 8)
	for op, r := range map[string]ucp.Request{
		"send": e.TagSend(p, 12), "long send": e.TagSend(make([]byte, big), 12), "inline": e.TagSendInline(p, 12),
		"scalar": e.TagSendUint64(1, 12), "vector": e.TagSendV([][]byte{p}, 12), "sync": e.TagSendSync(p, 12),
		"am": e.AMSend(1, nil, p), "flush": e.Flush(), "tied": a.w.TagRecv(p, 12, allBits).Tie(e).Request,
	} {
		require.True(t, r.Done(), op)
		require.ErrorIs(t, r.Err(), ucp.ErrClosed, op)
	}
	require.ErrorIs(t, e.Info().Err, ucp.ErrClosed)
	require.Zero(t, e.MaxInline())
	_, err := e.UnpackKey(a.mem.Key())
	require.ErrorIs(t, err, ucp.ErrClosed)
}

func (a *afterlife) unpackOver(e ucp.Endpoint) *ucp.RemoteKey {
	k, err := e.UnpackKey(a.mem.Key())
	require.NoError(a.t, err)
	return k
}

// key: a closed one reaches nothing, whatever its heirs reach.
func (a *afterlife) key() {
	old := a.unpackOver(a.e)
	atomic, err := ucp.AtomicAt[uint64](old, 8)
	require.NoError(a.t, err)
	require.NoError(a.t, old.Close())
	for range heirs {
		heir := a.unpackOver(a.e)
		a.requireNoAccess(old, atomic, ucp.ErrClosed)
		require.NoError(a.t, old.Close())
		require.NoError(a.t, heir.PutUint64(1, 0).Wait(a.ctx))
		require.NoError(a.t, heir.Close())
	}
}

// keyOfEndpoint: the end of the endpoint is the end of its keys.
func (a *afterlife) keyOfEndpoint() {
	e := a.newEndpoint()
	old := a.unpackOver(e)
	atomic, err := ucp.AtomicAt[uint64](old, 8)
	require.NoError(a.t, err)
	a.closing(e.Close)
	for range heirs {
		heir := a.newEndpoint()
		k := a.unpackOver(heir)
		a.requireNoAccess(old, atomic, ucp.ErrClosed)
		require.NoError(a.t, k.PutUint64(1, 0).Wait(a.ctx))
		a.closing(heir.Close)
	}
}

// requireNoAccess: no operation gets through k, and the memory is as it was.
func (a *afterlife) requireNoAccess(k *ucp.RemoteKey, at ucp.Atomic[uint64], want error) {
	t := a.t
	t.Helper()
	before := make([]byte, 64)
	copy(before, a.mem.Bytes())
	p := []byte("deadbeef")
	for op, r := range map[string]ucp.Request{
		"put": k.Put(p, 0), "inline put": k.PutInline(p, 0), "scalar put": k.PutUint64(7, 0), "get": k.Get(p, 0), "add": at.Add(1),
	} {
		require.ErrorIs(t, r.Wait(a.ctx), want, op)
	}
	_, err := k.GetUint64(0).Wait(a.ctx)
	require.ErrorIs(t, err, want)
	_, err = at.FetchAdd(1).Wait(a.ctx)
	require.ErrorIs(t, err, want)
	require.Equal(t, "deadbeef", string(p))
	if b := a.mem.Bytes(); b != nil {
		require.Equal(t, before, b[:64])
	}
}

// memory: once closed it is reached by nobody, also not where its pages, or its
// number, are another's now.
func (a *afterlife) memory() {
	t := a.t
	old := a.unpackOver(a.e)
	atomic, err := ucp.AtomicAt[uint64](old, 8)
	require.NoError(t, err)
	packed := a.mem.Key()
	require.NoError(t, a.mem.Close())
	require.Nil(t, a.mem.Bytes())
	for range heirs / 4 {
		heir, err := a.other.x.Allocate(4096, ucp.MemConfig{})
		require.NoError(t, err)
		a.mem = heir
		a.requireNoAccess(old, atomic, ucp.ErrRemoteAccess)
		_, err = a.e.UnpackKey(packed)
		require.ErrorIs(t, err, ucp.ErrRemoteAccess)
		k := a.unpackOver(a.e)
		require.NoError(t, k.PutUint64(1, 0).Wait(a.ctx))
		require.NoError(t, k.Close())
		require.NoError(t, heir.Close())
	}
}

// worker: everything of a closed one answers ErrClosed.
func (a *afterlife) worker() {
	t := a.t
	pending := a.w.TagRecv(make([]byte, 8), tagNever, allBits)
	require.NoError(t, a.w.Close())
	require.NoError(t, a.w.Close())
	heir, err := a.x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	_, err = pending.Wait(a.ctx)
	require.ErrorIs(t, err, ucp.ErrClosed)
	a.requireClosed(a.e)
	_, err = a.w.NewEndpoint(heir.Address(), ucp.EndpointConfig{})
	require.ErrorIs(t, err, ucp.ErrClosed)
	_, err = a.w.TagRecv(make([]byte, 8), 1, 1).Wait(a.ctx)
	require.ErrorIs(t, err, ucp.ErrClosed)
	require.ErrorIs(t, a.w.Run(a.ctx), ucp.ErrClosed)
	require.ErrorIs(t, a.w.HandleAM(1, func(*ucp.AM) {}), ucp.ErrClosed)
	require.ErrorIs(t, a.w.Arm(), ucp.ErrClosed)
	require.Zero(t, a.w.Progress())
	a.w.Signal()
	a.w.Fence()
	_, ok := a.w.TagProbe(0, 0)
	require.False(t, ok)
	require.ErrorIs(t, a.w.Flush().Wait(a.ctx), ucp.ErrClosed)
}

func (a *afterlife) context() {
	t := a.t
	mem, err := a.x.Allocate(64, ucp.MemConfig{})
	require.NoError(t, err)
	require.NoError(t, a.x.Close())
	require.NoError(t, a.x.Close())
	_, err = a.x.NewWorker(ucp.WorkerConfig{})
	require.ErrorIs(t, err, ucp.ErrClosed)
	_, err = a.x.Allocate(64, ucp.MemConfig{})
	require.ErrorIs(t, err, ucp.ErrClosed)
	_, err = a.x.Register(make([]byte, 8), ucp.MemConfig{})
	require.ErrorIs(t, err, ucp.ErrClosed)
	require.Nil(t, mem.Bytes())
	require.NoError(t, mem.Close())
	a.requireClosed(a.e)
}
