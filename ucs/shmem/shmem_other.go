//go:build !linux

package shmem

import (
	"time"

	"github.com/goucx/goucx/ucs"
)

// Stubs for systems other than Linux; the _linux files document the API. Constructors
// return an error, so no method runs on a usable object.

// MaxFDs: see conn_linux.go.
const MaxFDs = 8

// Events: see epoll_linux.go.
const (
	EventIn uint32 = 1 << iota
	EventRDHup
	EventEdge
	EventOneShot
)

// CloseFDs: see handle_linux.go.
func CloseFDs(...int) {}

// Segment: see segment_linux.go.
type Segment struct{}

// Create returns ErrUnsupported.
func Create(string, int) (*Segment, error) { return nil, unsupported("create segment", ErrBacking) }

// Map returns ErrUnsupported.
func Map(int, int) (*Segment, error) { return nil, unsupported("map segment", ErrBacking) }

// Bytes returns nil.
func (*Segment) Bytes() []byte { return nil }

// FD returns -1.
func (*Segment) FD() int { return -1 }

// CloseFD does nothing.
func (*Segment) CloseFD() error { return nil }

// Populate returns ErrUnsupported.
func (*Segment) Populate() error { return ucs.ErrUnsupported }

// Close does nothing.
func (*Segment) Close() error { return nil }

// Listener: see socket_linux.go.
type Listener struct{}

// Listen returns ErrUnsupported.
func Listen(string) (*Listener, error) { return nil, ucs.ErrUnsupported }

// Accept returns ErrUnsupported.
func (*Listener) Accept() (*Conn, error) { return nil, ucs.ErrUnsupported }

// CloseKeepFile does nothing.
func (*Listener) CloseKeepFile() (string, error) { return "", nil }

// FD returns -1.
func (*Listener) FD() int { return -1 }

// Close does nothing.
func (*Listener) Close() error { return nil }

// Dial returns ErrUnsupported.
func Dial(string) (*Conn, error) { return nil, ucs.ErrUnsupported }

// Conn: see conn_linux.go.
type Conn struct{}

// Cred: see conn_linux.go.
type Cred struct {
	PID int
	UID uint32
	GID uint32
}

// Send returns ErrUnsupported.
func (*Conn) Send([]byte, ...int) error { return ucs.ErrUnsupported }

// Recv returns ErrUnsupported.
func (*Conn) Recv([]byte) (int, []int, error) { return 0, nil, ucs.ErrUnsupported }

// Peer returns ErrUnsupported.
func (*Conn) Peer() (Cred, error) { return Cred{}, ucs.ErrUnsupported }

// PeerPidfd returns ErrUnsupported.
func (*Conn) PeerPidfd() (int, error) { return -1, ucs.ErrUnsupported }

// FD returns -1.
func (*Conn) FD() int { return -1 }

// Close does nothing.
func (*Conn) Close() error { return nil }

// EventFD: see eventfd_linux.go.
type EventFD struct{}

// NewEventFD returns ErrUnsupported.
func NewEventFD() (*EventFD, error) { return nil, ucs.ErrUnsupported }

// Signal returns ErrUnsupported.
func (*EventFD) Signal() error { return ucs.ErrUnsupported }

// Drain returns false.
func (*EventFD) Drain() bool { return false }

// FD returns -1.
func (*EventFD) FD() int { return -1 }

// Close does nothing.
func (*EventFD) Close() error { return nil }

// WakePipe: see wakepipe_linux.go.
type WakePipe struct{}

// NewWakePipe returns ErrUnsupported.
func NewWakePipe() (*WakePipe, error) { return nil, ucs.ErrUnsupported }

// Signal returns ErrUnsupported.
func (*WakePipe) Signal() error { return ucs.ErrUnsupported }

// Drain returns false.
func (*WakePipe) Drain() bool { return false }

// FD returns -1.
func (*WakePipe) FD() int { return -1 }

// Share returns -1.
func (*WakePipe) Share() int { return -1 }

// Close does nothing.
func (*WakePipe) Close() error { return nil }

// WakeWriter: see wakepipe_linux.go.
type WakeWriter struct{}

// OpenWakeWriter returns ErrUnsupported.
func OpenWakeWriter(int) (*WakeWriter, error) { return nil, ucs.ErrUnsupported }

// Signal returns ErrUnsupported.
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

// NewEpoll returns ErrUnsupported.
func NewEpoll() (*Epoll, error) { return nil, ucs.ErrUnsupported }

// Add returns ErrUnsupported.
func (*Epoll) Add(int, uint64, uint32) error { return ucs.ErrUnsupported }

// Rearm returns ErrUnsupported.
func (*Epoll) Rearm(int, uint64, uint32) error { return ucs.ErrUnsupported }

// Del returns ErrUnsupported.
func (*Epoll) Del(int) error { return ucs.ErrUnsupported }

// Wait returns ErrUnsupported.
func (*Epoll) Wait([]Event, int) (int, error) { return 0, ucs.ErrUnsupported }

// FD returns -1.
func (*Epoll) FD() int { return -1 }

// Close does nothing.
func (*Epoll) Close() error { return nil }

// RegisterGlobal returns ErrUnsupported.
func RegisterGlobal() error { return ucs.ErrUnsupported }

// RegisterPrivate returns ErrUnsupported.
func RegisterPrivate() error { return ucs.ErrUnsupported }

// GlobalBarrier returns ErrUnsupported.
func GlobalBarrier() error { return ucs.ErrUnsupported }

// PrivateBarrier returns ErrUnsupported.
func PrivateBarrier() error { return ucs.ErrUnsupported }

// ProcessRead returns ErrUnsupported.
func ProcessRead(int, []byte, uintptr) (int, error) { return 0, ucs.ErrUnsupported }

// ProcessWrite returns ErrUnsupported.
func ProcessWrite(int, []byte, uintptr) (int, error) { return 0, ucs.ErrUnsupported }

// ProcessWriteGuarded returns ErrUnsupported.
func ProcessWriteGuarded(int, uintptr, []byte, uintptr) error { return ucs.ErrUnsupported }

// PollSet: see poll_linux.go.
type PollSet struct{}

// NewPollSet: see poll_linux.go.
func NewPollSet(...int) *PollSet { return new(PollSet) }

// Wait returns ErrUnsupported.
func (*PollSet) Wait(int, time.Duration) (int, error) { return 0, ucs.ErrUnsupported }

// Ready returns false.
func (*PollSet) Ready(int) bool { return false }
