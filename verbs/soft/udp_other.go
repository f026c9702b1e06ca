//go:build !linux

package soft

import (
	"fmt"
	"net/netip"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Stubs for systems without the UDP link; the _linux files document them. openUDP
// always fails, so no method is reached on a real object.

type udpPort struct {
	counts                       udpCounts
	rcvbuf, unprivRcvbuf, sndbuf int
	tap                          func(sent bool, h *wire.Network, packet []byte)
}

type segmentBatch struct {
	peer  *udpPeer
	count int
}

type rxBuffer struct{}

func openUDP(addr netip.Addr, _ uint16, _ int) (*udpPort, error) {
	return nil, fmt.Errorf("open udp port on %v: %w", addr, ucs.ErrUnsupported)
}

func tryUDP() error { return ucs.ErrUnsupported }

func (u *udpPort) close() error                            { return nil }
func (u *udpPort) lid() uint16                             { return 0 }
func (u *udpPort) local() netip.AddrPort                   { return netip.AddrPort{} }
func (u *udpPort) gid() verbs.GID                          { return verbs.GID{} }
func (u *udpPort) enableClass() error                      { return ucs.ErrUnsupported }
func (u *udpPort) setClass(*udpPeer, uint8, uint8)         {}
func (u *udpPort) peer(verbs.GID, uint16) (udpPeer, error) { return udpPeer{}, ucs.ErrUnsupported }
func (u *udpPort) beginBatch(*udpPeer) *segmentBatch       { return &segmentBatch{} }
func (u *udpPort) recv() []*datagram                       { return nil }
func (t *segmentBatch) room(int) int                       { return 0 }
func (t *segmentBatch) add(*packet) bool                   { return false }
func (t *segmentBatch) send() ucs.Status                   { return ucs.Unsupported }
func (t *segmentBatch) sendMost() (int, ucs.Status)        { return 0, ucs.Unsupported }
func (q *qp) addFast(*segmentBatch, int) bool              { return false }
