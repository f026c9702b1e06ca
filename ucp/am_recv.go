package ucp

import (
	"math"

	"github.com/goucx/goucx/ucp/internal/pool"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// amStorage describes where the bytes of an active message are stored.
type amStorage struct {
	kind  storageKind
	iface *workerIface // for storageRetainable
	rx    *rxConn      // for storageSender
	id    uint64       // for storageRetainable Desc.Handle, for storageSender the sender's id of the message
	chunk pool.Chunk   // for storagePool
}

// storageKind selects what Retain has to do.
type storageKind uint8

const (
	storageTransient  storageKind = iota // transport memory, valid during the callback only: Retain copies
	storageRetainable                    // transport memory that may be retained (uct.DescCanRetain)
	storagePool                          // pool memory
	storageSender                        // the data is at the sender, the header in transport memory
)

// handleUser receives a whole active message. It reports whether the message's memory is kept.
//
//hot:bench BenchmarkAMPair
//go:noinline
func (wi *workerIface) handleUser(d *uct.Desc, data []byte) bool {
	if n := wire.WordHeaderLen(d.Header); d.Header>>32 == 0 && d.Flags == 0 && n <= min(len(data), MaxAMHeader) {
		wi.t.dispatch(nil, d.Header, data, amStorage{}) // Retain copies
		return false
	}
	return wi.handleUserChecked(wi.rxConn(d.RxConn), d, data)
}

// handleUserChecked receives a whole message that requests a reply, is in memory that may be
// retained, or is malformed.
func (wi *workerIface) handleUserChecked(rx *rxConn, d *uct.Desc, data []byte) bool {
	if !wi.validWord(rx, d.Header, len(data)) || d.Header&wire.WordPrefetch != 0 {
		wi.protocolError(rx)
		return false
	}
	place := amStorage{}
	if d.Flags&uct.DescCanRetain != 0 {
		place = amStorage{kind: storageRetainable, iface: wi, id: d.Handle}
	}
	return wi.t.dispatch(rx, d.Header, data, place) && place.kind == storageRetainable
}

// validWord reports whether header word is valid for a message of n bytes from s.
func (wi *workerIface) validWord(rx *rxConn, word uint64, n int) bool {
	h := wire.WordHeaderLen(word)
	return h <= n && h <= MaxAMHeader && word&^wire.WordMask == 0 && (word&wire.WordReply == 0 || rx.peer != 0)
}

// dispatch runs the handler of a message whose header and data are complete in b. It
// reports whether the handler called Retain.
func (w *thread) dispatch(rx *rxConn, word uint64, b []byte, place amStorage) bool {
	h := w.am.handler(word)
	if h == nil {
		w.am.dropUnknown(w, AMID(word))
		return false
	}
	n := wire.WordHeaderLen(word)
	m := &w.am.m
	m.ID, m.Len = AMID(word), len(b)-n
	m.Header, m.Data, m.storage = b[:n:n], b[n:], place
	if word&wire.WordReply != 0 {
		m.From = rx.fromEndpoint()
	}
	w.callAM(h)
	return m.reset()
}

// reset restores the state of m that the fast path expects. It reports whether the
// handler called Retain.
func (m *AM) reset() bool {
	kept := m.retained != nil
	// From is a closed endpoint if the sender did not set WantReply. So a handler that replies
	// to it gets ErrClosed and does not crash.
	m.Header, m.From, m.Rendezvous = nil, Endpoint{m.w, 0}, false
	m.storage, m.retained = amStorage{}, nil
	return kept
}

// poison overwrites m, so that a handler that retained m or its slices reads
// recognizable garbage.
func (m *AM) poison() {
	m.ID, m.Len = 0xdead, -1
	m.Header, m.Data = poisonBytes[:], poisonBytes[:]
}

var poisonBytes = [8]byte{0xde, 0xad, 0xde, 0xad, 0xde, 0xad, 0xde, 0xad}

// handleUserFirst receives the first fragment of an active message.
func (wi *workerIface) handleUserFirst(rx *rxConn, head uint64, data []byte) {
	w := wi.t
	h := wire.WordHeaderLen(head)
	if rx.into != reasmNone || len(data) <= wire.FirstHeaderLen+h || !wi.validWord(rx, head, len(data)) || head&wire.WordPrefetch != 0 {
		wi.protocolError(rx)
		return
	}
	n := wire.Uint64(data, 0)
	data = data[wire.FirstHeaderLen:]
	if n > math.MaxInt-MaxAMHeader || uint64(len(data)-h) >= n {
		wi.protocolError(rx)
		return
	}
	rx.total, rx.got, rx.tag = n+uint64(h), 0, head
	rx.fragSeq++
	if w.am.handler(head) == nil {
		w.am.dropUnknown(w, AMID(head))
		rx.into = reasmDiscard
	} else {
		rx.into = reasmHandler
		rx.chunk = w.allocBudgeted(int(min(rx.total, maxPrealloc)))
	}
	rx.addFragment(data)
}

// fromEndpoint returns the endpoint by which handlers reply to the sender of s. There is one
// per peer. If it has failed or was closed, fromEndpoint creates a new one.
func (rx *rxConn) fromEndpoint() Endpoint {
	w := rx.w
	e := Endpoint{w, rx.fromEp}
	if e.usable() {
		return e
	}
	if e.id = w.am.fromEps[rx.sender()]; !e.usable() {
		e = w.handle(w.newEpSlot(w.retainPeer(rx.sender())))
		if w.am.fromEps == nil {
			w.am.fromEps = make(map[wireup.PeerID]uint64)
		}
		w.am.fromEps[rx.sender()] = e.id
	}
	rx.fromEp = e.id
	return e
}

// usable reports whether e is open and has not failed.
func (e Endpoint) usable() bool {
	k := e.t.endpoint(e)
	return k != 0 && e.t.eps[k].status == ucs.OK
}

// dropFromEndpoint removes the reply endpoint to peer if it has failed. It frees the endpoint
// unless the program has bound a resource to it.
func (w *thread) dropFromEndpoint(peer wireup.PeerID) {
	id, ok := w.am.fromEps[peer]
	if !ok {
		return
	}
	k := w.endpoint(Endpoint{w, id})
	switch {
	case k == 0:
	case w.eps[k].status == ucs.OK:
		return
	case w.cold[k] == nil || len(w.cold[k].owned) == 0:
		w.detach(k)
		w.freeEndpoint(k)
	}
	delete(w.am.fromEps, peer)
}
