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
	counts                 udpCounts
	rcvbuf, shared, sndbuf int
	tap                    func(sent bool, h *wire.Network, packet []byte)
}

type train struct {
	to    *udpPeer
	count int
}

type rxMemory struct{}

func openUDP(addr netip.Addr, _ uint16, _ int) (*udpPort, error) {
	return nil, fmt.Errorf("open udp port on %v: %w", addr, ucs.ErrUnsupported)
}

func tryUDP() error { return ucs.ErrUnsupported }

func (u *udpPort) close() error                            { return nil }
func (u *udpPort) lid() uint16                             { return 0 }
func (u *udpPort) local() netip.AddrPort                   { return netip.AddrPort{} }
func (u *udpPort) gid() verbs.GID                          { return verbs.GID{} }
func (u *udpPort) askClass() error                         { return ucs.ErrUnsupported }
func (u *udpPort) setClass(*udpPeer, uint8, uint8)         {}
func (u *udpPort) peer(verbs.GID, uint16) (udpPeer, error) { return udpPeer{}, ucs.ErrUnsupported }
func (u *udpPort) train(*udpPeer) *train                   { return &train{} }
func (u *udpPort) recv() []*datagram                       { return nil }
func (t *train) room(int) int                              { return 0 }
func (t *train) add(*packet) bool                          { return false }
func (t *train) send() ucs.Status                          { return ucs.Unsupported }
func (t *train) sendMost() (int, ucs.Status)               { return 0, ucs.Unsupported }
func (q *qp) addShorts(*train, int) bool                   { return false }
