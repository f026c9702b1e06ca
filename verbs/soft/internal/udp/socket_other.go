//go:build !linux

package udp

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Stubs for systems without the UDP link; the _linux files document them. Open always
// fails, so no method is reached on a real object.

// Socket is a stub.
type Socket struct {
	FD           int
	Addr         netip.AddrPort
	GSO          atomic.Bool
	UnprivRcvbuf int
	Counts       Counts
	Tap          func(sent bool, h *wire.Network, packet []byte)
	HasQP        func(verbs.QPN) bool
}

// Batch is a stub.
type Batch struct {
	Peer              *Peer
	State             BatchState
	Count, Total, Pos int
	Buf               [1]byte
}

type rxBuffer struct{}

// Poller is a stub.
type Poller struct{}

// Open is a stub.
func Open(addr netip.Addr, _ uint16, _ int) (*Socket, error) {
	return nil, fmt.Errorf("open udp port on %v: %w", addr, ucs.ErrUnsupported)
}

// OpenGroup is a stub.
func OpenGroup(group netip.Addr, _ *net.Interface, _ int) (*Socket, error) {
	return nil, fmt.Errorf("join multicast group %v: %w", group, ucs.ErrUnsupported)
}

// GroupPeer is a stub.
func (u *Socket) GroupPeer(verbs.GID, *net.Interface) (Peer, error) {
	return Peer{}, ucs.ErrUnsupported
}

// Set is a stub.
type Set struct{}

// NewSet is a stub.
func NewSet() (*Set, error) { return nil, ucs.ErrUnsupported }

// Close is a stub.
func (s *Set) Close() error { return nil }

// Add is a stub.
func (s *Set) Add(*Socket) error { return ucs.ErrUnsupported }

// Remove is a stub.
func (s *Set) Remove(*Socket) {}

// All is a stub.
func (s *Set) All() []*Socket { return nil }

// Ready is a stub.
func (s *Set) Ready() []*Socket { return nil }

// Watch is a stub.
func (p *Poller) Watch(*Set) error { return ucs.ErrUnsupported }

// Probe is a stub.
func Probe() error { return ucs.ErrUnsupported }

// Close is a stub.
func (u *Socket) Close() error { return nil }

// LID is a stub.
func (u *Socket) LID() uint16 { return 0 }

// GID is a stub.
func (u *Socket) GID() verbs.GID { return verbs.GID{} }

// EnableClass is a stub.
func (u *Socket) EnableClass() error { return ucs.ErrUnsupported }

// SetClass is a stub.
func (u *Socket) SetClass(*Peer, uint8, uint8) {}

// SetFlowLabel is a stub.
func (u *Socket) SetFlowLabel(*Peer, uint32) error { return ucs.ErrUnsupported }

// Peer is a stub.
func (u *Socket) Peer(verbs.GID, uint16) (Peer, error) { return Peer{}, ucs.ErrUnsupported }

// WatchIdentifications is a stub.
func (u *Socket) WatchIdentifications() {}

// ShowsIdentifications is a stub.
func (u *Socket) ShowsIdentifications() error { return ucs.ErrUnsupported }

func (u *Socket) showsIdentification(*Source, uint16, []byte) bool { return false }

// PeerState is a stub.
func (u *Socket) PeerState(*Peer, verbs.QPN, ucs.Time) verbs.PeerState { return verbs.PeerUnknown }

// Unanswered is a stub.
func (u *Socket) Unanswered(*Peer, verbs.QPN) bool { return false }

// Begin is a stub.
func (u *Socket) Begin(*Peer) *Batch { return &Batch{} }

// Recv is a stub.
func (u *Socket) Recv() []*Datagram { return nil }

// LacksBuffer is a stub.
func (u *Socket) LacksBuffer() bool { return false }

// NewPoller is a stub.
func NewPoller([]*Socket) (*Poller, error) { return nil, ucs.ErrUnsupported }

// Reserve is a stub.
func (t *Batch) Reserve(int) []byte { return nil }

// Seal is a stub.
func (t *Batch) Seal(int) {}

// SealByRef is a stub.
func (t *Batch) SealByRef(int, int, [][]byte, int) {}

// Send is a stub.
func (t *Batch) Send() ucs.Status { return ucs.Unsupported }

// SendMost is a stub.
func (t *Batch) SendMost() (int, ucs.Status) { return 0, ucs.Unsupported }

// Arm is a stub.
func (p *Poller) Arm(time.Duration) error { return ucs.ErrUnsupported }

// Disarm is a stub.
func (p *Poller) Disarm() {}

// Wake is a stub.
func (p *Poller) Wake() {}

// Wait is a stub.
func (p *Poller) Wait() {}

// Close is a stub.
func (p *Poller) Close() error { return nil }
