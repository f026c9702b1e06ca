//go:build !linux

package shmem

import (
	"time"

	"github.com/goucx/goucx/ucs"
)

// The twins of what is documented in the _linux files. Constructors refuse, so
// the methods are never reached on a real object.

// MaxFDs: see conn_linux.go.
const MaxFDs = 8

// Events: see epoll_linux.go.
const (
	EventIn uint32 = 1 << iota
	EventOut
	EventErr
	EventHup
	EventRDHup
	EventEdge
	EventOneShot
)

// CloseFDs: see handle_linux.go.
func CloseFDs(...int) {}

// Segment: see segment_linux.go.
type Segment struct{}

// Create answers ErrUnsupported.
func Create(string, int) (*Segment, error) { return nil, unsupported("create segment", ErrBacking) }

// Map answers ErrUnsupported.
func Map(int, int) (*Segment, error) { return nil, unsupported("map segment", ErrBacking) }

// Bytes is nil.
func (*Segment) Bytes() []byte { return nil }

// FD is -1.
func (*Segment) FD() int { return -1 }

// CloseFD does nothing.
func (*Segment) CloseFD() error { return nil }

// Populate answers ErrUnsupported.
func (*Segment) Populate() error { return ucs.ErrUnsupported }

// Close does nothing.
func (*Segment) Close() error { return nil }

// Listener: see socket_linux.go.
type Listener struct{}

// Listen answers ErrUnsupported.
func Listen(string) (*Listener, error) { return nil, ucs.ErrUnsupported }

// Accept answers ErrUnsupported.
func (*Listener) Accept() (*Conn, error) { return nil, ucs.ErrUnsupported }

// Leave does nothing.
func (*Listener) Leave() (string, error) { return "", nil }

// FD is -1.
func (*Listener) FD() int { return -1 }

// Close does nothing.
func (*Listener) Close() error { return nil }

// Dial answers ErrUnsupported.
func Dial(string) (*Conn, error) { return nil, ucs.ErrUnsupported }

// Conn: see conn_linux.go.
type Conn struct{}

// Cred: see conn_linux.go.
type Cred struct {
	PID int
	UID uint32
	GID uint32
}

// Send answers ErrUnsupported.
func (*Conn) Send([]byte, ...int) error { return ucs.ErrUnsupported }

// Recv answers ErrUnsupported.
func (*Conn) Recv([]byte) (int, []int, error) { return 0, nil, ucs.ErrUnsupported }

// Peer answers ErrUnsupported.
func (*Conn) Peer() (Cred, error) { return Cred{}, ucs.ErrUnsupported }

// PeerPidfd answers ErrUnsupported.
func (*Conn) PeerPidfd() (int, error) { return -1, ucs.ErrUnsupported }

// FD is -1.
func (*Conn) FD() int { return -1 }

// Close does nothing.
func (*Conn) Close() error { return nil }

// EventFD: see eventfd_linux.go.
type EventFD struct{}

// NewEventFD answers ErrUnsupported.
func NewEventFD() (*EventFD, error) { return nil, ucs.ErrUnsupported }

// Signal answers ErrUnsupported.
func (*EventFD) Signal() error { return ucs.ErrUnsupported }

// Drain finds nothing.
func (*EventFD) Drain() bool { return false }

// FD is -1.
func (*EventFD) FD() int { return -1 }

// Close does nothing.
func (*EventFD) Close() error { return nil }

// WakePipe: see wakepipe_linux.go.
type WakePipe struct{}

// NewWakePipe answers ErrUnsupported.
func NewWakePipe() (*WakePipe, error) { return nil, ucs.ErrUnsupported }

// Signal answers ErrUnsupported.
func (*WakePipe) Signal() error { return ucs.ErrUnsupported }

// Drain finds nothing.
func (*WakePipe) Drain() bool { return false }

// FD is -1.
func (*WakePipe) FD() int { return -1 }

// Share is -1.
func (*WakePipe) Share() int { return -1 }

// Close does nothing.
func (*WakePipe) Close() error { return nil }

// WakeWriter: see wakepipe_linux.go.
type WakeWriter struct{}

// OpenWakeWriter answers ErrUnsupported.
func OpenWakeWriter(int) (*WakeWriter, error) { return nil, ucs.ErrUnsupported }

// Signal answers ErrUnsupported.
func (*WakeWriter) Signal() error { return ucs.ErrUnsupported }

// Close does nothing.
func (*WakeWriter) Close() error { return nil }

// Event: see epoll_linux.go.
type Event struct {
	Data   uint64
	Events uint32
}

// Epoll: see epoll_linux.go.
type Epoll struct{}

// NewEpoll answers ErrUnsupported.
func NewEpoll() (*Epoll, error) { return nil, ucs.ErrUnsupported }

// Add answers ErrUnsupported.
func (*Epoll) Add(int, uint64, uint32) error { return ucs.ErrUnsupported }

// Rearm answers ErrUnsupported.
func (*Epoll) Rearm(int, uint64, uint32) error { return ucs.ErrUnsupported }

// Del answers ErrUnsupported.
func (*Epoll) Del(int) error { return ucs.ErrUnsupported }

// Wait answers ErrUnsupported.
func (*Epoll) Wait([]Event, int) (int, error) { return 0, ucs.ErrUnsupported }

// FD is -1.
func (*Epoll) FD() int { return -1 }

// Close does nothing.
func (*Epoll) Close() error { return nil }

// RegisterMembarrier answers ErrUnsupported.
func RegisterMembarrier() error { return ucs.ErrUnsupported }

// RegisterGlobal answers ErrUnsupported.
func RegisterGlobal() error { return ucs.ErrUnsupported }

// RegisterPrivate answers ErrUnsupported.
func RegisterPrivate() error { return ucs.ErrUnsupported }

// GlobalBarrier answers ErrUnsupported.
func GlobalBarrier() error { return ucs.ErrUnsupported }

// PrivateBarrier answers ErrUnsupported.
func PrivateBarrier() error { return ucs.ErrUnsupported }

// ProcessRead answers ErrUnsupported.
func ProcessRead(int, []byte, uintptr) (int, error) { return 0, ucs.ErrUnsupported }

// ProcessWrite answers ErrUnsupported.
func ProcessWrite(int, []byte, uintptr) (int, error) { return 0, ucs.ErrUnsupported }

// PollSet: see poll_linux.go.
type PollSet struct{}

// NewPollSet: see poll_linux.go.
func NewPollSet(...int) *PollSet { return new(PollSet) }

// Wait answers ErrUnsupported.
func (*PollSet) Wait(int, time.Duration) (int, error) { return 0, ucs.ErrUnsupported }

// Ready is false.
func (*PollSet) Ready(int) bool { return false }
